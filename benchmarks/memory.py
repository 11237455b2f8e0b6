"""Does memory stay flat while a long stream is trained on? Prints and writes the resident set along the stream.

python benchmarks/memory.py --rows 20000000
"""

import argparse
import json
import os
from pathlib import Path

import torch

from daes.model import CTRModel
from daes.simulation import AdStream
from daes.training import StreamTrainer, TrainConfig


def resident_megabytes() -> float:
    """Memory of this process in main memory, from the kernel's own count of pages (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Train once over a simulated stream and watch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--points", type=int, default=20, help="how often to look")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--method", default="daes")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/memory.json"))
    given = parser.parse_args()

    torch.manual_seed(0)
    stream = AdStream(given.rows)
    model = CTRModel.from_sample(
        stream.schema,
        stream.batch(0, min(given.rows, 50_000)),
        embedding=given.method,
        backbone="fnn",
        sizes=5000,
        backbone_options={"hidden": (32, 8)},
    )
    every = max(1, given.rows // given.points)
    seen: list[tuple[int, float]] = []

    def watch(trainer: StreamTrainer, batch: object, logits: object) -> None:
        if trainer.rows // every > len(seen) - 1:
            seen.append((trainer.rows, resident_megabytes()))
            print(
                f"{trainer.rows:>12,} rows  {seen[-1][1]:8.0f} MB  {trainer.rows / trainer.seconds:8.0f} rows/s",
                flush=True,
            )

    result = StreamTrainer(model, TrainConfig(batch_size=given.batch_size), callbacks=[watch]).run(stream)
    later = [megabytes for rows, megabytes in seen if rows >= given.rows / 4]
    growth = later[-1] / later[0] - 1
    print(f"from a quarter of the stream to its end memory grew by {growth:+.1%}; AUC {result.metrics['auc']:.4f}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"rows": given.rows, "resident_megabytes": seen, "growth": growth}, indent=2))


if __name__ == "__main__":
    main()
