"""Independent pieces of work, each logged as soon as it is done, so that a run can be stopped and resumed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from daes.experiments.fingerprint import code_fingerprint
from daes.experiments.log import ResultLog, result_key
from daes.experiments.workers import Task
from daes.paper.experiment import Execution, Findings, OutOfTimeError
from daes.storage.run_folder import plain


def run_pieces(
    task: Task, pieces: Sequence[Mapping[str, Any]], execution: Execution, name: Callable[[Any], str]
) -> list[Findings]:
    """The findings of a task for each piece, in their order.

    Finished pieces are in the result log of the execution's folder and are not repeated by the same code.

    Args:
        task: called with None, a piece and a function that reports progress; returns plain values. It must be
            picklable. An error in one piece ends the run once all others are done.
        pieces: the arguments of each call, as plain values.
        execution: how to run them.
        name: name of a piece in lines of progress and in errors.
    """
    keys = [result_key(plain(piece), "", code_fingerprint("paper")) for piece in pieces]
    items = dict(zip(keys, pieces, strict=True))
    with ResultLog(execution.folder) as log:
        errors = []
        for piece, content in log.run_missing(
            partial(_find, task),
            items,
            describe=lambda piece: {"piece": plain(piece)},
            jobs=execution.jobs,
            on_note=lambda piece, line: execution.note(line),
            deadline=execution.deadline,
        ):
            if "error" in content:
                errors.append(f"{name(piece)}: {content['error']}")
            else:
                execution.note(f"{sum(key in log for key in items)}/{len(pieces)} {name(piece)}")
        if errors:
            raise RuntimeError(f"{len(errors)} of {len(pieces)} pieces failed: {errors[0]}")
        done = sum(key in log for key in items)
        if done < len(items):
            raise OutOfTimeError(f"{done} of {len(pieces)} pieces are done")
        return [log.results[key]["found"] for key in keys]


def _find(task: Task, shared: None, piece: Any, note: Callable[[Any], None]) -> Findings:
    return {"found": plain(task(shared, piece, note))}
