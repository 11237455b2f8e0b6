"""What it costs to make batches of messages, beside reading the same rows from a Parquet file.

    python benchmarks/messages.py [--rows 20000] [--repeats 3] [--out build/benchmarks/messages.json]

The messages are in memory, so that the broker and its client are not measured: JSON, a row a message, and Arrow, 100
and 1,000 rows per message; rows of the simulated ad stream, 31 columns, in batches of 128. Times are CPU time per row,
the best of the repeats; the ratio is that of the file over the messages.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from daes.stream.dataset import Dataset
from daes.stream.messages import Message, MessageSource
from daes.stream.schema import Schema


class Log:
    """A topic in memory, as a `Consumer`."""

    name = "memory"

    def __init__(self, payloads: list[bytes]) -> None:
        self._messages = [Message(0, place, 0, data) for place, data in enumerate(payloads)]
        self._next = 0

    def start(self) -> dict[int, int]:
        return {0: 0}

    def seek(self, offsets: Any) -> None:
        self._next = offsets[0]

    def poll(self, most: int, seconds: float) -> list[Message]:
        found = self._messages[self._next : self._next + most]
        self._next += len(found)
        return found

    def lag(self) -> int:
        return len(self._messages) - self._next

    def complete_until(self) -> int:
        return 0

    def close(self) -> None:
        pass


def ipc(table: Any) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return bytes(stream.getvalue().to_pybytes())


def measure(make: Callable[[], Dataset], schema: Schema, repeats: int) -> float:
    """CPU microseconds for a row."""
    best = float("inf")
    for _ in range(repeats):
        data = make()
        started = time.process_time()
        rows = sum(len(batch) for batch in data.iter_batches(schema, 128))
        best = min(best, (time.process_time() - started) / rows * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows (20000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs; the best counts (3)")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/messages.json"), help="where JSON goes")
    options = parser.parse_args()
    simulated = Dataset.open(f"adstream:{options.rows}")
    schema = Schema("click", simulated.schema.numerical, simulated.schema.categorical)
    table = next(simulated.iter_tables(schema.columns, options.rows))
    payloads = {"JSON, 1 row a message": [json.dumps(row).encode() for row in table.to_pylist()]}
    for rows in (100, 1000):
        payloads[f"Arrow, {rows} rows a message"] = [
            ipc(table.slice(start, rows)) for start in range(0, options.rows, rows)
        ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.parquet")
        pq.write_table(table, file)
        found = {"Parquet file": measure(lambda: Dataset.open(file, schema=schema), schema, options.repeats)}
        for name, some in payloads.items():

            def topic(some: list[bytes] = some) -> Dataset:
                return Dataset(MessageSource(Log(some)), schema, limit=options.rows)

            found[name] = measure(topic, schema, options.repeats)
    print(f"{'':28} µs/row   ratio")
    for name, cost in found.items():
        print(f"{name:28} {cost:6.1f}  {found['Parquet file'] / cost:6.2f}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rows": options.rows, "microseconds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
