"""daes in river: progressive validation on one of river's streams, next to river's own logistic regression."""

from river import datasets, evaluate, linear_model, metrics, preprocessing

from daes.adapters.river import RiverClassifier
from daes.classifier import StreamingClassifier

models = {
    "logistic regression": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    "daes": RiverClassifier(StreamingClassifier(learning_rate=0.01, evidence=False), batch_size=16),
}
for name, model in models.items():
    score = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.ROCAUC())
    print(f"{name}: {score}")
