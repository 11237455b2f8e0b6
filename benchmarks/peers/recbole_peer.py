"""RecBole: a pass of learning over rows that are encoded already. Run by `python -m benchmarks.peers`."""

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from recbole.config import Config
from recbole.data import create_dataset
from recbole.model.context_aware_recommender import DCNV2, FNN, DeepFM


def dataset(folder: Path, numbers, ids, label, model):
    """The rows as RecBole's own file, and what it makes of it."""
    place = folder / "rows"
    place.mkdir(exist_ok=True)
    names = [f"n{i}" for i in range(numbers.shape[1])] + [f"c{i}" for i in range(ids.shape[1])]
    head = [f"{name}:{'float' if name[0] == 'n' else 'token'}" for name in names] + ["label:float"]
    with (place / "rows.inter").open("w") as file:
        file.write("\t".join(head) + "\n")
        for row in zip(numbers.tolist(), ids.tolist(), label.tolist(), strict=True):
            file.write("\t".join(map(str, [*row[0], *row[1], row[2]])) + "\n")
    config = Config(
        model,
        "rows",
        config_dict={
            "data_path": str(folder),
            "load_col": {"inter": [*names, "label"]},
            "LABEL_FIELD": "label",
            "USER_ID_FIELD": "c0",
            "ITEM_ID_FIELD": "c1",
            "embedding_size": 16,
            "mlp_hidden_size": [128, 32, 8],
            "dropout_prob": 0.0,
            "threshold": None,
            "normalize_all": False,
            "numerical_features": [name for name in names if name[0] == "n"],
            "device": "cpu",
            "use_gpu": False,
            "state": "ERROR",
        },
    )
    made = create_dataset(config)
    made._change_feat_format()  # tables to tensors, as `build` does before it splits rows
    return config, made


def main() -> None:
    path, batch_size, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.argv = sys.argv[:1]  # RecBole reads it
    torch.set_num_threads(threads)
    data = np.load(path)
    with tempfile.TemporaryDirectory() as folder:
        config, rows = dataset(Path(folder), data["numbers"], data["ids"], data["label"], "DeepFM")
        batches = [
            rows.inter_feat[start : start + batch_size]
            for start in range(0, len(rows.inter_feat) - batch_size + 1, batch_size)
        ]
        for kind in (DeepFM, FNN, DCNV2):
            for name, value in {"cross_layer_num": 3, "structure": "parallel", "mixed": False, "reg_weight": 0}.items():
                config[name] = value
            model = kind(config, rows).train()
            optimizer = torch.optim.Adagrad(model.parameters(), lr=0.03)

            def step(batch, model=model, optimizer=optimizer):
                optimizer.zero_grad()
                model.calculate_loss(batch).backward()
                optimizer.step()

            for batch in batches[:4]:
                step(batch)
            started, spent = perf_counter(), process_time()
            for batch in batches:
                step(batch)
            done = len(batches) * batch_size
            speed = {
                "rows_per_second": done / (perf_counter() - started),
                "rows_per_cpu_second": done / (process_time() - spent),
            }
            print(json.dumps({"model": kind.__name__.replace("DCNV2", "DCN v2"), **speed}), flush=True)


main()
