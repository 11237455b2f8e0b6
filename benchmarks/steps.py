"""What a training step costs, as a ratio to the same step of a model with EFD, taken as usual, in the same run.

A step scores a batch and then learns from it, as one pass over a stream does. Models with and without recorded steps
(`TrainConfig.cuda_graphs`, CUDA only) take turns on the same rows of the simulated ad stream, held in memory; each
counts with its best turn. Reservoirs and vocabularies have seen the rows before.

    python benchmarks/steps.py --device cuda
    python benchmarks/steps.py --batch-size 8192 --backbones fnn
"""

import argparse
import json
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import torch

import daes
from daes.model import CTRModel
from daes.simulation import AdStream
from daes.stream.batch import Batch
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

BASE = ("efd", False)
STEPS = 20
"""Steps per turn."""


@dataclass(frozen=True)
class Row:
    """Milliseconds per step and their ratio to the base; `recorded` is whether steps were CUDA graphs."""

    backbone: str
    method: str
    mode: str
    recorded: bool
    milliseconds: float
    ratio: float


def make_step(
    method: str, backbone: str, mode: str, graphs: bool, rows: Batch, stream: AdStream, args: argparse.Namespace
) -> TrainingStep:
    """A step that has seen the rows."""
    torch.manual_seed(0)
    model = CTRModel.from_sample(
        stream.schema, rows[:10_000], embedding=method, backbone=backbone, categorical_options={"mode": mode}
    ).to(args.device)
    step = TrainingStep(model, TrainConfig(batch_size=args.batch_size, cuda_graphs=graphs))
    turn(step, rows, args.batch_size)
    return step


def turn(step: TrainingStep, rows: Batch, size: int) -> float:
    """Seconds per step."""
    batches = [rows[start : start + size] for start in range(0, STEPS * size, size)]
    started = perf_counter()
    for batch in batches:
        prepared = step.prepare(batch)
        step.score(prepared)  # waits for the device
        step.learn(prepared, 0)
    return (perf_counter() - started) / len(batches)


def measure(args: argparse.Namespace) -> list[Row]:
    stream = AdStream(num_rows=STEPS * args.batch_size + 10_000, seed=0)
    rows = stream.batch(0, stream.num_rows, stream.schema)
    ways = (False, True) if args.device.startswith("cuda") else (False,)
    found = []
    for backbone in args.backbones.split(","):
        for mode in ("hash", "vocabulary"):
            steps = {
                (method, graphs): make_step(method, backbone, mode, graphs, rows, stream, args)
                for method in args.methods.split(",")
                for graphs in ways
            }
            best = dict.fromkeys(steps, float("inf"))
            for number in range(args.repeat):
                for key in [*steps][number % len(steps) :] + [*steps][: number % len(steps)]:
                    best[key] = min(best[key], turn(steps[key], rows, args.batch_size))
            for (method, graphs), seconds in best.items():
                found.append(Row(backbone, method, mode, graphs, 1e3 * seconds, seconds / best[BASE]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--batch-size", type=int, default=256, help="rows per step (256)")
    parser.add_argument("--backbones", default="deepfm,xdeepfm", help="names, separated by commas")
    parser.add_argument("--methods", default="efd,daes,daes-gate", help="names, separated by commas")
    parser.add_argument("--repeat", type=int, default=5, help="turns; the best counts (5)")
    parser.add_argument("--out", type=Path, help="where JSON goes (nowhere)")
    args = parser.parse_args()
    found = measure(args)
    where = torch.cuda.get_device_name() if args.device.startswith("cuda") else f"{torch.get_num_threads()} threads"
    print(f"batch {args.batch_size}, {where}, torch {torch.__version__}, daes {daes.__version__}")
    for row in found:
        how = "recorded" if row.recorded else "as usual"
        label = f"{row.backbone} {row.method} {row.mode} {how}"
        print(f"{label:<42} {row.milliseconds:8.2f} ms {row.ratio:6.2f}")
    if args.out is not None:
        content = {"arguments": {**vars(args), "out": str(args.out)}, "rows": [asdict(row) for row in found]}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({**content, "python": platform.python_version()}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
