"""A FuxiCTR model whose numeric features are embedded by daes instead of by a linear map."""

import tempfile
from collections import OrderedDict
from pathlib import Path

import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel

from daes.adapters.fuxictr import use_method


class DNN(BaseModel):
    def __init__(self, feature_map, embedding_dim=8, **kwargs):
        super().__init__(feature_map, "DNN", **kwargs)
        self.embedding_layer = FeatureEmbedding(feature_map, embedding_dim)
        self.mlp = MLP_Block(2 * embedding_dim, hidden_units=[16], output_dim=1, output_activation="Sigmoid")
        self.compile("adam", "binary_crossentropy", lr=0.01)
        self.reset_parameters()

    def forward(self, inputs):
        return {"y_pred": self.mlp(self.embedding_layer(self.get_inputs(inputs), flatten_emb=True))}


torch.manual_seed(0)
folder = Path(tempfile.mkdtemp())
(folder / "clicks").mkdir()  # for the checkpoints
features = FeatureMap("clicks", folder)
numeric = {"type": "numeric", "source": ""}
features.features = OrderedDict(price=numeric, city={"type": "categorical", "vocab_size": 4, "source": ""})
features.labels = ["click"]
model = DNN(features, model_root=folder, metrics=["AUC"], verbose=0)
print("by daes:", use_method(model, "daes"))
price = torch.randn(60, 256).exp()
batches = [{"price": one, "city": torch.randint(0, 4, (256,)), "click": (one > 1).float()} for one in price]
model.fit(batches[:50], validation_data=batches[50:])
print(model.evaluate(batches[50:], metrics=["AUC"]))
