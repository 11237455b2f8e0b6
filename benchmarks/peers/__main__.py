"""What other libraries learn in a second from the same rows, each in an environment of its own.

    python -m benchmarks.peers --data criteo.parquet --batch-size 128

For each peer an environment is made under `build/peers`, its packages are installed there, and its script beside this
file learns from rows that are encoded already: numbers of unit scale, ids as indices, in one `.npz` file. Nothing is
scored, read or monitored meanwhile, unlike in a pass of ours. A peer that cannot be installed is skipped, and the
reason is printed.
"""

import argparse
import json
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from daes.stream.dataset import Dataset

PEERS = {
    "deepctr": ("deepctr-torch", "scikit-learn", "pandas", "tensorboard", "tqdm", "requests"),
    "fuxictr": ("fuxictr", "polars<2"),
    "recbole": ("recbole", "numpy<2", "pandas<2.3", "scipy<1.13"),
}
"""What to install for each beside torch."""
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
FOLDER = Path("build/peers")


class Speed(NamedTuple):
    """Rows of learning alone in a second, on the clock and of the processor's time."""

    peer: str
    model: str
    rows_per_second: float
    rows_per_cpu_second: float


def encode(data: Dataset, rows: int, path: Path) -> None:
    """Numbers of unit scale without missing values, ids as indices from 0, and labels."""
    batch = data.sample(rows)
    assert batch.label is not None
    scaled = np.log1p(np.clip(np.nan_to_num(batch.numerical), 0, None))
    ids = np.stack([np.unique(column, return_inverse=True)[1] for column in batch.categorical.T], 1)
    np.savez(path, numbers=scaled / max(float(scaled.std()), 1e-6), ids=ids, label=batch.label)


def environment(name: str, folder: Path) -> Path:
    """The interpreter of the peer's environment, made and filled if it is not there."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
        for packages in (["torch", "-c", str(CONSTRAINTS)], PEERS[name]):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def measure(data: Dataset, rows: int, batch_size: int, threads: int, folder: Path) -> Iterator[Speed]:
    """The speed of every model of every peer that can be installed."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "rows.npz")
        encode(data, rows, path)
        for name in PEERS:
            try:
                python = environment(name, folder.absolute())
            except subprocess.CalledProcessError as error:
                print(f"{name} is skipped: it could not be installed ({error})")
                continue
            script = Path(__file__).with_name(f"{name}_peer.py")
            command = [str(python), str(script), str(path), str(batch_size), str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name} is skipped: {done.stderr.strip().splitlines()[-1]}")
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    found = json.loads(line)
                    yield Speed(name, found["model"], found["rows_per_second"], found["rows_per_cpu_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="adstream:50000", help="rows with a label, as `daes train` takes them")
    parser.add_argument("--rows", type=int, default=50_000, help="rows to learn from (50000)")
    parser.add_argument("--batch-size", type=int, default=128, help="rows per step (128)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the environments are")
    given = parser.parse_args()
    data = Dataset.open(given.data)
    for found in measure(data, given.rows, given.batch_size, given.threads, given.folder):
        speed = f"{found.rows_per_second:,.0f} rows/s, {found.rows_per_cpu_second:,.0f} per CPU second"
        print(f"{found.peer}, {found.model}, batch {given.batch_size}: {speed}", flush=True)


if __name__ == "__main__":
    main()
