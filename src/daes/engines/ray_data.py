"""Training on a Ray Dataset: its blocks, in order, as a source of rows."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from daes.engines.base import EngineError, Failure
from daes.engines.ray_train import run_workers
from daes.extras import require
from daes.storage.run_folder import RunFolder
from daes.stream.cursor import Cursor, NumberedCursor, Position
from daes.stream.cursor_source import CursorSource
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.processes import LostProcessError, OtherProcessError
from daes.training.run import train_run


class RaySource(CursorSource):
    """The rows of a `ray.data.Dataset`, which is computed once and kept in Ray's object store.

    A position is a row number. The blocks stay in order, so every process that has the source, also one that Ray has
    started in place of another, reads the same rows. They exist as long as the program that made the source.

    Args:
        dataset: the Ray Dataset, finite. Its blocks are in the order in which it was read.
    """

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        ray = require("ray")
        # Otherwise blocks are in the order in which their tasks end.
        dataset.context.execution_options.preserve_order = True
        blocks = dataset.to_arrow_refs()
        count = ray.remote(lambda block: block.num_rows)
        rows = ray.get([count.remote(block) for block in blocks])
        self._blocks = [block for block, length in zip(blocks, rows, strict=True) if length]
        self._ends: list[int] = list(accumulate(length for length in rows if length))
        if not self._blocks:
            raise ValueError("dataset must have rows, got none")
        self._schema = ray.get(self._blocks[0]).schema

    @property
    def arrow_schema(self) -> Any:
        return self._schema

    @property
    def num_rows(self) -> int:
        return self._ends[-1]

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        get = require("ray").get
        load = lru_cache(maxsize=1)(lambda number: get(self._blocks[number]).select(list(columns)))

        def make(start: int, stop: int) -> Any:
            number = bisect_right(self._ends, start)
            table = load(number)
            return table.slice(start - self._ends[number] + table.num_rows, stop - start)

        return NumberedCursor(make, self.num_rows)


def train_dataset(
    dataset: Any,
    folder: str | Path,
    *,
    workers: int = 2,
    use_gpu: bool = False,
    columns: Mapping[str, Any] | None = None,
    resume: bool = False,
    **arguments: Any,
) -> RunFolder:
    """Train a model on a `ray.data.Dataset` in workers of Ray Train, which are replaced if they are lost.

    Like `daes.training.run.train_run` in several processes, on rows that Ray Data has read and prepared.

    Args:
        dataset: the Ray Dataset; see `RaySource`.
        folder: the run's folder, visible to all machines.
        workers: number of processes.
        use_gpu: whether each process has a GPU.
        columns: arguments of `Dataset.open`: label, numerical, categorical, time, weight, exclude, limit.
        resume: continue the run in the folder. It is an error if the dataset does not begin with the rows that were
            read before, in the same order.
        arguments: further arguments of `train_run`; they are pickled.

    Raises:
        EngineError: if training has failed, with the worker's message.
    """
    if arguments.get("overwrite"):
        raise ValueError(
            "overwrite could also replace the run of a lost worker: remove the folder first, got overwrite=True"
        )
    folder = Path(folder).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = partial(_train, RaySource(dataset), dict(columns or {}), str(folder), resume, arguments)
    results, _ = run_workers(work, workers, folder=folder.parent, use_gpu=use_gpu)
    for failure in filter(None, results):
        raise EngineError(failure.sentence)
    return RunFolder(folder)


def _train(
    source: RaySource, columns: Mapping[str, Any], folder: str, resume: bool, arguments: Mapping[str, Any], attempt: int
) -> Failure | None:
    """Train in a worker; returns None, or a failure that another attempt would not change."""
    try:
        train_run(Dataset.open(source, **columns), folder, resume=resume or attempt > 0, **arguments)
    except LostProcessError:
        raise  # Ray starts all workers again
    except OtherProcessError:
        return None  # the other one says what
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")
    return None
