"""What many columns do to the first rows of a stream: LogLoss of the default recipe by backbone, on made-up tables.

    python benchmarks/wide.py --columns 150 --backbones deepfm,fnn

One number decides on the clicks. In the table "same" all columns are that number with a little noise, in "noise" one
column is, and the others, half of them ids, say nothing. The LogLoss of the mean click rate is what a model must be
below.
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.stream.source import BatchSource
from daes.training import StreamTrainer, TrainConfig

PARTS = (0, 500, 2000)
"""The rows at which parts of the stream begin, each with a LogLoss of its own."""


def made(kind: str, columns: int, rows: int, seed: int) -> Batch:
    """A table of a kind."""
    rng = np.random.default_rng(seed)
    cause = rng.normal(size=(rows, 1))
    clicks = rng.random(rows) < 1 / (1 + np.exp(1.5 - cause[:, 0]))
    if kind == "same":
        numbers, ids = cause + 0.3 * rng.normal(size=(rows, columns)), np.empty((rows, 0), np.int64)
    else:
        ids = rng.integers(1, 50, (rows, columns // 2))
        numbers = np.concatenate([cause, rng.normal(size=(rows, columns - columns // 2 - 1))], 1)
    return Batch(numbers.astype(np.float32), ids, clicks.astype(np.float32))


def losses(rows: Batch, backbone: str, evidence: bool, batch_size: int, seed: int) -> NDArray[np.float64]:
    """The LogLoss of every row, scored before it was learned from."""
    assert rows.label is not None
    (_, numbers), (_, ids) = rows.numerical.shape, rows.categorical.shape
    schema = Schema("y", tuple(f"n{i}" for i in range(numbers)), tuple(f"c{i}" for i in range(ids)))
    torch.manual_seed(seed)
    model = CTRModel.from_sample(schema, rows, embedding="daes", backbone=backbone, evidence=evidence, sizes=100)
    logits: list[NDArray[np.float32]] = []
    trainer = StreamTrainer(
        model, TrainConfig(batch_size=batch_size), callbacks=[lambda _, __, scores: logits.append(np.array(scores))]
    )
    trainer.run(BatchSource(rows, schema))
    scores = np.concatenate(logits).astype(np.float64)
    return np.logaddexp(0, scores) - rows.label * scores


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=150, help="columns of a table (150)")
    parser.add_argument("--rows", type=int, default=6000, help="rows of a table (6000)")
    parser.add_argument("--batch-size", type=int, default=16, help="rows per step (16)")
    parser.add_argument("--backbones", default="deepfm,fnn", help="names, separated by commas")
    parser.add_argument("--seed", type=int, default=0, help="of the tables and the models (0)")
    given = parser.parse_args()
    print("| columns | backbone | evidence | " + " | ".join(f"from row {start:,}" for start in PARTS) + " |")
    for kind in ("same", "noise"):
        rows = made(kind, given.columns, given.rows, given.seed)
        assert rows.label is not None
        rate = float(rows.label.mean())
        print(f"| {kind} | the mean click rate | | {-rate * np.log(rate) - (1 - rate) * np.log(1 - rate):.3f} |")
        for backbone in given.backbones.split(","):
            for evidence in (True, False):
                found = losses(rows, backbone, evidence, given.batch_size, given.seed)
                parts = [found[start:stop].mean() for start, stop in zip(PARTS, (*PARTS[1:], None), strict=True)]
                cells = " | ".join(f"{part:.3f}" for part in parts)
                print(f"| {kind} | {backbone} | {'yes' if evidence else 'no'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
