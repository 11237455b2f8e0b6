"""How many category values `hash_column` hashes per second on one core, beside what others offer for the same job.

    python benchmarks/hashing.py [--rows 1000000] [--repeats 5] [--out build/benchmarks/hashing.json]

The process keeps to one core where the system allows it. Every peer gets the column in its own form, made beforehand
(an object array, a polars series, a list of lists), except the Python loop, which starts from the Arrow column: Python
remembers the hash of a string object, so that a second look at the same objects would cost nothing. The peers do not
all do the same job: `dictionary_encode` numbers the values in order of appearance, Python's `hash` of a string differs
from run to run, polars' may differ between versions, FeatureHasher goes on to build a sparse matrix, and for integers
pandas and polars hash the number where daes hashes its decimal text. Times are CPU time, the best of the repeats; the
ratio is daes over the peer, above 1 where daes is the quicker one.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from sklearn.feature_extraction import FeatureHasher

from daes.stream.hashing import hash_column

SLOW_ROWS = 100_000
"""Rows for the peers that work value by value in Python."""


def make_columns(rows: int, seed: int = 0) -> dict[str, pa.Array]:
    """The workloads: what category columns look like."""
    generator = np.random.default_rng(seed)
    few = np.minimum(generator.zipf(1.2, rows), 10_000)
    many = generator.integers(0, 2**32, rows)
    texts = [f"{value:08x}" for value in (few * 2_654_435_761 % 2**32).tolist()]
    lengths = generator.integers(1, 33, rows).tolist()
    return {
        "8 hex digits": pa.array(texts),
        "8 hex digits, 30 % null": pa.array(texts, mask=generator.random(rows) < 0.3),
        "8 hex digits, all different": pa.array([f"{value:08x}" for value in many.tolist()]),
        "1 to 32 bytes": pa.array([(4 * text)[:length] for text, length in zip(texts, lengths, strict=True)]),
        "integers below 10⁸": pa.array(many % 10**8),
        "integers of 64 bits": pa.array(generator.integers(-(2**63), 2**63 - 1, rows)),
        "dictionary": pa.array(texts).dictionary_encode(),
    }


def make_peers(column: pa.Array) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name → (what to time, the number of values it works on)."""
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    objects = plain.to_numpy(zero_copy_only=False)
    series = pl.Series(plain)
    sample = plain.slice(0, SLOW_ROWS)
    hasher = FeatureHasher(input_type="string")
    lists = [[str(value)] for value in sample.to_pylist()]
    rows, slow = len(column), len(sample)
    return {
        "daes hash_column": (lambda: hash_column(column), rows),
        "pandas hash_array": (lambda: pd.util.hash_array(objects), rows),
        "polars Series.hash": (lambda: series.hash(), rows),
        "pyarrow dictionary_encode": (lambda: plain.dictionary_encode(), rows),
        "Python loop of hash": (lambda: [hash(value) for value in sample.to_pylist()], slow),
        "scikit-learn FeatureHasher": (lambda: hasher.transform(lists), slow),
    }


def best_time(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def measure(rows: int, repeats: int) -> list[dict[str, Any]]:
    results = []
    for workload, column in make_columns(rows).items():
        rates = {peer: count / best_time(call, repeats) for peer, (call, count) in make_peers(column).items()}
        ours = rates["daes hash_column"]
        results += [
            {"workload": workload, "peer": peer, "values_per_second": rate, "daes_over_peer": ours / rate}
            for peer, rate in rates.items()
        ]
    return results


def environment() -> dict[str, str]:
    packages = ("numpy", "pandas", "polars", "pyarrow", "scikit-learn")
    return {"python": platform.python_version(), "machine": platform.machine()} | {p: version(p) for p in packages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="values (1000000)")
    parser.add_argument("--repeats", type=int, default=5, help="runs; the best counts (5)")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/hashing.json"), help="where JSON goes")
    arguments = parser.parse_args()
    if arguments.rows < 1 or arguments.repeats < 1:
        parser.error("--rows and --repeats must be positive")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    results = measure(arguments.rows, arguments.repeats)
    workload = ""
    print(f"{'':28}{'M values/s':>12}{'daes over peer':>16}")
    for result in results:
        if result["workload"] != workload:
            workload = result["workload"]
            print(workload)
        rate, ratio = result["values_per_second"] / 1e6, result["daes_over_peer"]
        print(f"  {result['peer']:<26}{rate:>12.1f}{ratio:>16.1f}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"benchmark": "hashing", "rows": arguments.rows, "environment": environment(), "results": results}
    arguments.out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
