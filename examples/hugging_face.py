"""A model in the format of the Hugging Face Hub; `model.push_to_hub("user/name")` would upload the same files."""

import tempfile
from pathlib import Path

from daes.adapters.hub import HubModel
from daes.stream import Dataset
from daes.training import StreamTrainer, TrainConfig

data = Dataset.open("adstream:2000")
model = HubModel(data.schema, backbone="fnn", sizes=1000)
StreamTrainer(model, TrainConfig(batch_size=500)).run(data)

folder = Path(tempfile.mkdtemp()) / "model"
model.save_pretrained(folder)
print("files:", *sorted(path.name for path in folder.iterdir()))
again = HubModel.from_pretrained(folder)
batch = data.sample(5)
print("same scores:", bool((again.predict_proba(batch) == model.eval().predict_proba(batch)).all()))
