"""DeepCTR-Torch: a pass of learning over rows that are encoded already. Run by `python -m benchmarks.peers`."""

import json
import sys
from time import perf_counter, process_time

import numpy as np
import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat
from deepctr_torch.models import DCN, WDL, DeepFM


def main() -> None:
    path, batch_size, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    data = np.load(path)
    numbers, ids, label = data["numbers"], data["ids"], data["label"]
    dense = [DenseFeat(f"n{place}", 1) for place in range(numbers.shape[1])]
    sparse = [SparseFeat(f"c{place}", int(ids[:, place].max()) + 1, embedding_dim=16) for place in range(ids.shape[1])]
    rows = {f"n{place}": numbers[:, place] for place in range(numbers.shape[1])}
    rows |= {f"c{place}": ids[:, place] for place in range(ids.shape[1])}
    for name, kind, more in (
        ("DeepFM", DeepFM, {}),
        ("Wide & Deep", WDL, {}),
        ("DCN v2", DCN, {"cross_num": 3, "cross_parameterization": "matrix"}),
    ):
        model = kind(dense + sparse, dense + sparse, dnn_hidden_units=(128, 32, 8), task="binary", device="cpu", **more)
        model.compile("adagrad", "binary_crossentropy")
        few = {column: values[: 4 * batch_size] for column, values in rows.items()}
        model.fit(few, label[: 4 * batch_size], batch_size=batch_size, epochs=1, verbose=0)
        started, spent = perf_counter(), process_time()
        model.fit(rows, label, batch_size=batch_size, epochs=1, verbose=0)
        speed = {
            "rows_per_second": len(label) / (perf_counter() - started),
            "rows_per_cpu_second": len(label) / (process_time() - spent),
        }
        print(json.dumps({"model": name, **speed}), flush=True)


main()
