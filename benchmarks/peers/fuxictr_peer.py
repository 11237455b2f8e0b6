"""FuxiCTR: a pass of learning over rows that are encoded already. Run by `python -m benchmarks.peers`.

The package has layers and the training step, not its model zoo: the models are put together as the zoo has them.
"""

import json
import sys
import tempfile
from time import perf_counter, process_time

import numpy as np
import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import CrossNetV2, FactorizationMachine, FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel


class Model(BaseModel):
    """FNN, DeepFM or DCN v2 (the parallel form)."""

    def __init__(self, features, name, folder):
        super().__init__(features, verbose=0, model_root=folder, metrics=["AUC"])
        self.embedding = FeatureEmbedding(features, 16)
        width = features.sum_emb_out_dim()
        self.machine = FactorizationMachine(features) if name == "DeepFM" else None
        self.cross = CrossNetV2(width, 3) if name == "DCN v2" else None
        self.mlp = MLP_Block(width, hidden_units=[128, 32, 8], output_dim=None if self.cross else 1)
        self.readout = torch.nn.Linear(width + 8, 1) if self.cross else None
        self.compile("Adagrad", "binary_crossentropy", 0.03)
        self._max_gradient_norm = 10.0

    def forward(self, inputs):
        given = self.get_inputs(inputs)
        vectors = self.embedding(given)
        flat = vectors.flatten(start_dim=1)
        logit = self.mlp(flat)
        if self.cross is not None:
            logit = self.readout(torch.cat([self.cross(flat), logit], 1))
        if self.machine is not None:
            logit = logit + self.machine(given, vectors)
        return {"y_pred": self.output_activation(logit)}


def main() -> None:
    path, batch_size, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    data = np.load(path)
    numbers, ids, label = (torch.from_numpy(data[name]) for name in ("numbers", "ids", "label"))
    columns = {f"n{place}": column.float() for place, column in enumerate(numbers.T)}
    columns |= {f"c{place}": column for place, column in enumerate(ids.T)} | {"label": label.float()}
    with tempfile.TemporaryDirectory() as folder:
        features = FeatureMap("rows", folder)
        for name, column in columns.items():
            if name != "label":
                kind = "numeric" if name[0] == "n" else "categorical"
                features.features[name] = {"source": "", "type": kind, "vocab_size": int(column.max()) + 1}
        features.labels, features.default_emb_dim = ["label"], 16
        features.num_fields = features.get_num_fields()
        features.set_column_index()
        batches = [
            {name: column[start : start + batch_size] for name, column in columns.items()}
            for start in range(0, len(label) - batch_size + 1, batch_size)
        ]
        for name in ("DeepFM", "FNN", "DCN v2"):
            model = Model(features, name, folder).train()
            for batch in batches[:4]:
                model.train_step(batch)
            started, spent = perf_counter(), process_time()
            for batch in batches:
                model.train_step(batch)
            rows = len(batches) * batch_size
            speed = {
                "rows_per_second": rows / (perf_counter() - started),
                "rows_per_cpu_second": rows / (process_time() - spent),
            }
            print(json.dumps({"model": name, **speed}), flush=True)


main()
