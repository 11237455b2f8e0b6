"""A divided table and its Adagrad sums in checkpoints, which have all rows: any number of processes can read them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from daes.embedding import DividedEmbedding
from daes.storage.nested_state import Pieces
from daes.training.processes.group import Processes
from daes.training.step import TrainingStep

MAP_ABOVE = 1 << 24
"""Larger arrays, in bytes, are mapped from a checkpoint, since each process needs only its own rows of them."""
_AT_ONCE = 1 << 16
_DONE = -1


class DividedState:
    """The state of a `TrainingStep` whose model has a divided table.

    To save it, the first process requests the others' rows while it writes (`asking`), and they `answer`: no process
    has more than a few rows of another one in its memory.

    Args:
        step: the step; its only optimiser is Adagrad.
    """

    def __init__(self, step: TrainingStep, table: DividedEmbedding, processes: Processes) -> None:
        (adagrad,) = step.optimizers.parts
        self._place = adagrad.place(table.weight)
        self._tensors = (table.weight.detach(), adagrad.sums[self._place])
        self._shape = table.num_rows, table.dim
        self.table, self.processes = table, processes

    def whole(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state of the step with the rows of all processes, fetched while it is written, within `asking`."""
        pieces = (Pieces(one.dtype, self._shape, partial(self._read, place)) for place, one in enumerate(self._tensors))
        return self._with_tables(state, *pieces)

    def own(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a state with all rows that belongs to this process."""
        tables = state["model"]["categorical.weight"], state["optimizers"][0]["sums"][self._place]
        for one in tables:
            if tuple(one.shape) != self._shape:
                raise RuntimeError(f"it has a table of shape {tuple(one.shape)}, not {self._shape}")
        start, stop = self.table.first_row, self.table.first_row + len(self.table.weight)
        return self._with_tables(state, *(one[start:stop] for one in tables))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Within it, the first process may write what `whole` returns, while the others `answer`."""
        try:
            yield
        finally:
            for other in range(1, self.processes.count):
                self._ask(other, _DONE, 0, 0)

    def answer(self) -> None:
        """Send rows of this process to the first one until it is `_DONE`."""
        while True:
            asked = torch.empty(3, dtype=torch.int64)
            self.processes.receive(asked, 0)
            number, start, stop = asked.tolist()
            if number == _DONE:
                return
            self.processes.send(self._tensors[number][start:stop], 0)

    def _read(self, number: int) -> Iterator[Tensor]:
        own, each = self._tensors[number], self.table.rows_each
        for start in range(0, len(own), _AT_ONCE):
            yield own[start : start + _AT_ONCE]
        for other in range(1, self.processes.count):
            count = max(min(each, self.table.num_rows - each * other), 0)
            for start in range(0, count, _AT_ONCE):
                stop = min(start + _AT_ONCE, count)
                self._ask(other, number, start, stop)
                rows = torch.empty(stop - start, self.table.dim, dtype=own.dtype)
                self.processes.receive(rows, other)
                yield rows

    def _ask(self, other: int, number: int, start: int, stop: int) -> None:
        self.processes.send(torch.tensor([number, start, stop]), other)

    def _with_tables(self, state: Mapping[str, Any], weight: Any, sums: Any) -> dict[str, Any]:
        (adagrad,) = state["optimizers"]
        totals = list(adagrad["sums"])
        totals[self._place] = sums
        return {
            **state,
            "model": {**state["model"], "categorical.weight": weight},
            "optimizers": [{**adagrad, "sums": totals}],
        }
