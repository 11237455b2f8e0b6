"""How fast a model is served: in process and over HTTP, at 1, 32 and 512 rows, beside onnxruntime alone and beside EFD.

    python benchmarks/serving.py [--rows 40000] [--seconds 5] [--compile] [--out build/benchmarks/serving.json]
    python benchmarks/serving.py --onnx [--turns 15]
    python benchmarks/serving.py --load 600 [--reload 10]

The first form trains two models on the simulated ad stream (10 numbers, 20 categories, DeepFM), DAES and EFD, and times

- **onnxruntime**: `session.run` on arrays that are prepared: no rows to read, nothing else to do;
- **scorer**: `Scorer.score_rows` on rows as dicts, reading and hashing included; with --compile also the compiled one;
- **HTTP**: `daes serve` in a process of its own, one connection, JSON; --compile is passed on.

Everything computes with one thread. On a machine that others use, the quickest call says more than the median. The
second form times onnxruntime alone on both models in turn, and counts the operations of their graphs. The third form
sends requests of 1 to 32 rows over four connections for so many seconds while a new checkpoint is written every
--reload seconds, and counts what fails.
"""

import argparse
import http.client
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daes.formatting import compact, duration
from daes.serving.compiled import CompiledScores
from daes.serving.scorer import Scorer
from daes.serving.versions import ModelFolder
from daes.storage.checkpoint import CheckpointStore
from daes.stream.dataset import Dataset
from daes.table import Table
from daes.training.config import TrainConfig
from daes.training.run import train_run

SIZES = (1, 32, 512)


def make_run(folder: Path, method: str, rows: int) -> Path:
    """A run of a method on the ad stream."""
    model = {"embedding": method, "backbone": "deepfm"}
    train_run(Dataset.open(f"adstream:{rows}"), folder, model=model, config=TrainConfig(batch_size=512))
    return folder


def make_rows(schema: Any, count: int = 512) -> list[dict[str, Any]]:
    """Rows as a client sends them."""
    random = np.random.default_rng(0)
    numbers = random.lognormal(size=(count, schema.num_numerical))
    ids = random.integers(0, 1000, (count, schema.num_categorical))
    return [
        dict(zip(schema.numerical, numbers[place].tolist(), strict=True))
        | {name: f"value {number}" for name, number in zip(schema.categorical, ids[place].tolist(), strict=True)}
        for place in range(count)
    ]


def timed(call: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds that each call took, for about so many seconds in all, after a few that do not count."""
    for _ in range(5):
        call()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 20:
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return found


def summary(times: list[float], rows: int) -> dict[str, float]:
    """The quickest call, percentiles of all, and calls and rows per second."""
    ordered = sorted(times)
    return {
        "best": ordered[0],
        "p50": statistics.median(ordered),
        "p99": ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)],
        "calls_per_second": len(ordered) / sum(ordered),
        "rows_per_second": rows * len(ordered) / sum(ordered),
        "calls": len(ordered),
    }


def session_of(model: Any, path: Path) -> Any:
    """A session with one thread of an exported model."""
    import onnxruntime

    model.to_onnx(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def onnx_in_turn(runs: Mapping[str, Path], turns: int) -> dict[str, Any]:
    """Operations by method and, by number of rows, the median call of the quickest and of the median turn."""
    import onnx

    calls: dict[str, Callable[[int], Callable[[], Any]]] = {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for method, run in runs.items():
            model = ModelFolder(run).load_newest().model.freeze()
            path = Path(temporary) / f"{method}.onnx"
            session, scorer = session_of(model, path), Scorer(model)
            found[method] = {"operations": len(onnx.load(path).graph.node)}

            def call(count: int, session: Any = session, scorer: Scorer = scorer) -> Callable[[], Any]:
                batch = scorer.read_rows(make_rows(scorer.model.schema)[:count])
                inputs = {"numerical": batch.numerical, "categorical": batch.categorical}
                return lambda: session.run(["probability"], inputs)

            calls[method] = call
        for count in SIZES:
            times: dict[str, list[float]] = {method: [] for method in runs}
            ready = {method: call(count) for method, call in calls.items()}
            for _ in range(turns):
                for method, one in ready.items():
                    times[method].append(statistics.median(timed(one, 0.1)))
            for method, medians in times.items():
                found[method][count] = {"best": min(medians), "p50": statistics.median(medians)}
    return found


def show_in_turn(found: Mapping[str, Any]) -> Table:
    """The results of `onnx_in_turn` as a table, with what the first method takes relative to the last one."""
    lines = []
    for method, one in found.items():
        times = [f"{duration(one[count]['best'])}, {duration(one[count]['p50'])}" for count in SIZES]
        lines.append((method, str(one["operations"]), *times))
    first, *_, last = found.values()
    ratios = [f"{first[count]['p50'] / last[count]['p50']:.2f}" for count in SIZES]
    lines.append(("ratio", f"{first['operations'] / last['operations']:.2f}", *ratios))
    headers = ("", "operations", *(f"{count} row{'s' * (count > 1)}" for count in SIZES))
    return Table(headers, lines, left=frozenset((0,)))


def in_process(run: Path, seconds: float, *, compiled: bool) -> dict[str, dict[int, dict[str, float]]]:
    """onnxruntime alone and the scorer, by number of rows."""
    model = ModelFolder(run).load_newest().model.freeze()
    rows = make_rows(model.schema)
    plain = Scorer(model)
    with tempfile.TemporaryDirectory() as temporary:
        session = session_of(model, Path(temporary) / "model.onnx")
        calls: dict[str, Callable[[int], Callable[[], Any]]] = {}

        def onnx_call(count: int) -> Callable[[], Any]:
            batch = plain.read_rows(rows[:count])
            inputs = {"numerical": batch.numerical, "categorical": batch.categorical}
            return lambda: session.run(["probability"], inputs)

        calls["onnxruntime"] = onnx_call
        calls["scorer"] = lambda count: lambda: plain.score_rows(rows[:count])
        if compiled:
            code = CompiledScores.compile(model, Path(temporary) / "scores.pt2")
            fast = Scorer(model, compiled=code)
            calls["scorer, compiled"] = lambda count: lambda: fast.score_rows(rows[:count])
        return {
            name: {count: summary(timed(make(count), seconds), count) for count in SIZES}
            for name, make in calls.items()
        }


@contextmanager
def server(run: Path, *options: str) -> Iterator[tuple[str, int]]:
    """`daes serve` in a process of its own: host and port."""
    command = [sys.executable, "-m", "daes", "serve", str(run), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "500"}) as process:
        assert process.stderr is not None
        try:
            compiled = "--compile" not in options
            address: tuple[str, int] | None = None
            while address is None or not compiled:
                line = process.stderr.readline()
                if not line:
                    raise RuntimeError("the server has ended")
                compiled = compiled or "the model is compiled" in line
                if found := re.search(r"http://([\d.]+):(\d+)", line):
                    address = found[1], int(found[2])
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield address
        finally:
            process.terminate()


def ask(connection: http.client.HTTPConnection, body: bytes) -> int:
    """Send a request; the status of the answer."""
    connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def over_http(run: Path, seconds: float, *, compiled: bool) -> dict[int, dict[str, float]]:
    """One connection, by number of rows."""
    rows = make_rows(ModelFolder(run).schema())
    found = {}
    with server(run, *(["--compile"] if compiled else [])) as address:
        connection = http.client.HTTPConnection(*address)
        for count in SIZES:
            body = json.dumps({"rows": rows[:count]}).encode()
            found[count] = summary(timed(lambda body=body: ask(connection, body), seconds), count)  # type: ignore[misc]
        connection.close()
    return found


def under_load(run: Path, seconds: float, reload_seconds: float, *, compiled: bool) -> dict[str, Any]:
    """Requests over four connections while new checkpoints are written: what was answered, and how."""
    rows = make_rows(ModelFolder(run).schema(), 64)
    lock, times, statuses, broken = threading.Lock(), [], {}, 0
    models: set[str] = set()

    def client(number: int, address: tuple[str, int], end: float) -> None:
        nonlocal broken
        connection = http.client.HTTPConnection(*address)
        random = np.random.default_rng(number)
        while time.monotonic() < end:
            count = int(random.choice([1, 1, 1, 8, 32]))
            started = time.perf_counter()
            try:
                connection.request(
                    "POST", "/predict", json.dumps({"rows": rows[:count]}), {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                content = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError):
                with lock:
                    broken += 1
                connection.close()
                continue
            with lock:
                times.append(time.perf_counter() - started)
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
                models.add(content.get("model", ""))

    written = 0
    with server(run, *(["--compile"] if compiled else [])) as address:
        end = time.monotonic() + seconds  # from here on: a server takes seconds to start
        clients = [threading.Thread(target=client, args=(number, address, end)) for number in range(4)]
        for thread in clients:
            thread.start()
        with CheckpointStore(run / "checkpoints", keep=3) as store:
            first = store.load()
            assert first is not None
            while time.monotonic() + reload_seconds < end:
                time.sleep(reload_seconds)
                written += 1
                store.save(first.step + written, first.state)
        for thread in clients:
            thread.join()
    failed = broken + sum(number for status, number in statuses.items() if status != 200)
    percentiles = summary(times, 1)
    return {
        "seconds": seconds,
        "requests": len(times) + broken,
        "requests_per_second": len(times) / seconds,
        "failed": failed,
        "statuses": statuses,
        "checkpoints_written": written,
        "models_that_answered": len(models),
        "p50": percentiles["p50"],
        "p99": percentiles["p99"],
    }


def show(results: dict[str, Any]) -> Table:
    """The results as a table."""
    lines = []
    for method, parts in results.items():
        for name, sizes in parts.items():
            for count, found in sizes.items():
                times = (duration(found[name]) for name in ("best", "p50", "p99"))
                cells = (*times, compact(found["calls_per_second"]))
                lines.append((method, name, str(count), *cells, compact(found["rows_per_second"])))
    return Table(("method", "", "rows", "best", "p50", "p99", "calls/s", "rows/s"), lines, left=frozenset((0, 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000, help="rows to train on (40000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each is timed (5)")
    parser.add_argument("--compile", action="store_true", help="also the compiled model")
    parser.add_argument("--onnx", action="store_true", help="onnxruntime alone, both models in turn")
    parser.add_argument("--turns", type=int, default=15, help="with --onnx: turns (15)")
    parser.add_argument("--load", type=float, metavar="SECONDS", help="send requests for so long while models change")
    parser.add_argument("--reload", type=float, default=10.0, help="with --load: seconds between checkpoints (10)")
    parser.add_argument("--out", type=Path, help="where JSON goes (nowhere)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="daes-serving-") as temporary:
        if given.load:
            run = make_run(Path(temporary) / "daes", "daes", given.rows)
            results = under_load(run, given.load, given.reload, compiled=given.compile)
            print(json.dumps(results, indent=2))
        elif given.onnx:
            runs = {method: make_run(Path(temporary) / method, method, given.rows) for method in ("daes", "efd")}
            results = onnx_in_turn(runs, given.turns)
            print(show_in_turn(results).markdown())
        else:
            for method in ("daes", "efd"):
                run = make_run(Path(temporary) / method, method, given.rows)
                found: dict[str, Any] = dict(in_process(run, given.seconds, compiled=given.compile))
                found["HTTP, compiled" if given.compile else "HTTP"] = over_http(
                    run, given.seconds, compiled=given.compile
                )
                results[method] = found
            print(show(results).markdown())
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
