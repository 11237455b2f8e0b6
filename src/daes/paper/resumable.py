"""Independent pieces of work, each kept as soon as it is done, so that a run can stop and go on."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from daes.experiments.fingerprint import code_fingerprint
from daes.experiments.workers import Death, Task, run_tasks
from daes.paper.experiment import Findings, Means, OutOfTimeError
from daes.paper.result import plain
from daes.storage.durable import write_text
from daes.storage.lock import WriterLock

RESULTS = "results.jsonl"


def run_pieces(
    task: Task, pieces: Sequence[Mapping[str, Any]], means: Means, name: Callable[[Any], str]
) -> list[Findings]:
    """What the task found for each piece, in their order.

    Finished pieces are lines of `results.jsonl` in the folder of the means, which has one writer at a time, and are not
    done again by the same code. Each is done in one of `means.jobs` processes; past the deadline no further one is
    begun.

    Args:
        task: a function of a module, called with None, a piece and a function to note progress with; returns plain
            values. An error of one piece stops the run once those in progress are done.
        pieces: what to do, as plain values.
        means: how.
        name: what a piece is called in lines of progress and in errors.
    """
    means.folder.mkdir(parents=True, exist_ok=True)
    lock = WriterLock(means.folder / "lock")
    lock.acquire()
    try:
        return _run_missing(task, pieces, means, name)
    finally:
        lock.release()


def _run_missing(
    task: Task, pieces: Sequence[Mapping[str, Any]], means: Means, name: Callable[[Any], str]
) -> list[Findings]:
    path = means.folder / RESULTS
    keys = [_key(piece) for piece in pieces]
    kept = _read(path)
    done = {key: kept[key] for key in keys if key in kept}
    left = [piece for piece, key in zip(pieces, keys, strict=True) if key not in done]
    errors = []
    for piece, found in _run(task, left, means):
        if isinstance(found, str):
            errors.append(f"{name(piece)}: {found}")
            continue
        done[_key(piece)] = plain(found)
        _append(path, {"piece": plain(piece), "code": code_fingerprint("paper"), "found": plain(found)})
        means.note(f"{len(done)}/{len(pieces)} {name(piece)}")
    if errors:
        raise RuntimeError(f"{len(errors)} of {len(pieces)} pieces failed: {errors[0]}")
    if len(done) < len(set(keys)):
        raise OutOfTimeError(f"{len(done)} of {len(pieces)} pieces are done")
    return [done[key] for key in keys]


def _run(
    task: Task, pieces: Sequence[Mapping[str, Any]], means: Means
) -> Iterator[tuple[Mapping[str, Any], Findings | str]]:
    attempt = partial(_attempt, task)
    if means.jobs == 1 or len(pieces) < 2:
        for piece in pieces:
            if _past(means):
                return
            yield piece, attempt(None, piece, means.note)
        return
    for piece, found in run_tasks(attempt, None, pieces, jobs=means.jobs, enough=partial(_past, means)):
        yield piece, str(found) if isinstance(found, Death) else found


def _attempt(task: Task, shared: None, piece: Any, note: Any) -> Findings | str:
    """What was found, or the error as a sentence."""
    try:
        found: Findings = task(shared, piece, note)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found


def _past(means: Means) -> bool:
    return means.deadline is not None and monotonic() >= means.deadline


def _key(piece: Mapping[str, Any]) -> str:
    return json.dumps(plain(piece), sort_keys=True)


def _append(path: Path, content: Findings) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(content, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> dict[str, Findings]:
    """What this code found, by piece. A line that was cut short when its writer was stopped is removed."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    whole, end, rest = text.rpartition("\n")
    if rest:
        write_text(path, whole + end)
    done: dict[str, Findings] = {}
    for line in whole.split("\n"):
        try:
            content = json.loads(line)
            if content["code"] == code_fingerprint("paper"):
                done[_key(content["piece"])] = content["found"]
        except (ValueError, TypeError, KeyError):
            continue
    return done
