"""The gradient of a step that several processes take together."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from daes.embedding import DividedEmbedding
from daes.model import CTRModel
from daes.native import tensors as native
from daes.training.optimizer import coalesced
from daes.training.processes.group import Processes


class GradientExchange:
    """Averages the gradients of a step over the rows of all processes.

    Process r's rows weigh W_r and have the mean loss L_r. The gradient becomes that of Σ W_r L_r / Σ W_r: the mean
    over all rows of the step, however many of them a process has, and also if it has none. Running statistics of
    BatchNorm are averaged the same way.

    Adding up is divided among the processes: each gets its share of all gradients and adds them up. Of a table with
    sparse gradients only the rows that were looked up are sent, and row i is of the share of process i mod N. The sums
    of dense parameters are given to all. So are those of a table, unless it lies in memory that all processes share
    (`shared`), or is a `DividedEmbedding`, of which a row is of the share of the process that has it: then each process
    keeps the sums of its share, and its optimiser changes these rows alone.
    Without such tables, as on CUDA devices, `torch.distributed` does it.

    Every process ends up with the same bits, so that parameters stay equal if they were equal before.
    """

    def __init__(self, model: CTRModel, processes: Processes) -> None:
        self.model = model
        self.processes = processes
        self.divided = model.categorical if isinstance(model.categorical, DividedEmbedding) else None
        self.shared = False
        """Whether the table is one for all processes, in memory that they share."""
        self.norm_of_rows = 0.0
        """The norm of the last gradient of a table of which this process keeps a share, over those of all processes."""
        self._slots = torch.empty(0, dtype=torch.int32)  # scratch memory of the compiled sum

    @torch.no_grad()
    def __call__(self, loss: Tensor, weight: float, row: int, buffers: list[Tensor]) -> Tensor:
        """Replace all gradients, and these buffers, by the mean over the rows of all processes; the mean loss.

        Args:
            loss: this process's mean loss, a scalar.
            weight: how many rows it is the mean of, or what they weigh; 0 for none.
            row: where in the stream the step is, the same in all processes.
            buffers: tensors to average along.
        """
        dense, tables = self._groups
        dense = [one for one in dense if one.requires_grad]  # a frozen one must not decay
        own = [torch.zeros_like(one) if one.grad is None else one.grad for one in dense]
        tensors = [*own, *buffers, loss.reshape(1).to(own[0] if own else loss)]
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        rows, values, to = self._rows() if tables else (None, None, [])
        told = self.processes.meet("step", row, weight, *to)
        total = float(told[:, 0].sum())
        share = weight / total if total > 0 else 1 / self.processes.count
        if rows is None or values is None:
            flat *= share
            self.processes.add(flat)
        else:
            of = told[:, 1 + self.processes.rank].int().tolist()
            flat, rows, values = self._added_up(flat.cpu(), rows, values, share, to, of)
            tables[0].grad = _sparse(rows, values, tables[0].shape, is_coalesced=True).to(tables[0].device)
        mean = torch.split(flat.to(loss.device), [tensor.numel() for tensor in tensors])
        for parameter, gradient in zip(dense, mean, strict=False):
            parameter.grad = gradient.view_as(parameter)
        for buffer, average in zip(buffers, mean[len(dense) :], strict=False):
            buffer.copy_(average.view_as(buffer))
        return mean[-1][0].to(loss)

    @cached_property
    def _groups(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The parameters as the optimisers have them, from the first step on."""
        return self.model.parameter_groups()

    @property
    def own_rows(self) -> Tensor | None:
        """The table whose gradient has the rows of this process's share alone."""
        if self.divided is not None:
            return self.divided.weight
        return self._groups[1][0] if self.shared else None

    def applied(self) -> None:
        """The optimiser has taken its step: wait for those of the others where they change the same table."""
        if self.shared:
            self.processes.wait()

    def _rows(self) -> tuple[Tensor, Tensor, list[int]]:
        """The rows (n,) of the table that have a gradient, each once, and these (n, d), on the host.

        Also, how many there are of the share of each process.
        """
        if self.divided is not None:
            rows, values = self.divided.gradient()
        else:
            (table,) = self._groups[1]
            if table.grad is None:
                rows, values = torch.empty(0, dtype=torch.int64), torch.empty(0, table.shape[1], dtype=table.dtype)
            else:
                gradient = coalesced(table.grad)
                rows, values = gradient.indices()[0].cpu(), gradient.values().cpu()
        return rows, values, torch.bincount(self._owners(rows), minlength=self.processes.count).tolist()

    def _owners(self, rows: Tensor) -> Tensor:
        return rows % self.processes.count if self.divided is None else self.divided.owners(rows)

    def _added_up(
        self, flat: Tensor, rows: Tensor, values: Tensor, factor: float, to: list[int], of: list[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The sums over all processes of a vector (n,), and of the rows of a table, each of which is there once then.

        This process gives its own times the factor. It has `to[r]` rows of process r's share, and process r `of[r]` of
        this one's. The vector is cut into pieces of equal size. Where processes keep the rows of their shares, the sums
        are those of this one's, numbered from the first row of this process on if the table is divided.
        """
        count, dim = self.processes.count, values.shape[1]
        width, each = -(-len(flat) // count), dim + 8 // values.element_size()
        sizes = [width + each * number for number in to]
        sent = self._packed(flat, rows, values, factor, sizes, width)
        sizes_of = [width + each * number for number in of]
        found = self.processes.swap_rows(sent, sizes, sizes_of)
        told = self.processes.room(width + 1, sent)
        piece = told[:width].copy_(found[0][:width])
        for one in found[1:]:
            piece += one[:width]
        rows, values = self._sum_of_rows([one[width:] for one in found], dim)
        told[width] = values.square().sum()
        if self.own_rows is not None:
            parts = self.processes.gather_parts(told, [width + 1] * count)
            self.norm_of_rows = float(torch.stack([one[width] for one in parts]).double().sum().sqrt())
            return torch.cat([one[:width] for one in parts])[: len(flat)], rows, values
        piece = piece.clone()
        counts = self.processes.gather_rows(torch.tensor([len(rows)]), [1] * count).tolist()
        sizes = [width + each * number for number in counts]
        parts = self.processes.gather_parts(torch.cat([piece, _joined(rows, values).flatten()]), sizes)
        flat = torch.cat([one[:width] for one in parts])[: len(flat)]
        return flat, *_parted(torch.cat([one[width:] for one in parts]), dim)

    def _packed(
        self, flat: Tensor, rows: Tensor, values: Tensor, factor: float, sizes: list[int], width: int
    ) -> Tensor:
        """What the processes are given, of these sizes: a piece of the vector and the rows of their shares, each."""
        sent = self.processes.room(sum(sizes), values)
        parts = torch.split(sent, sizes)
        for part, piece in zip(parts, torch.split(flat, width), strict=False):
            torch.mul(piece, factor, out=part[: len(piece)])
        for number, part in enumerate(parts):
            part[max(len(flat) - number * width, 0) : width] = 0  # pieces are of one size
        if values.dtype == torch.float32 and native.serves(rows, values):
            ends = np.cumsum([0, *sizes[:-1]]) + width
            native.pack(
                rows, values, factor, len(sizes), 0 if self.divided is None else self.divided.rows_each, ends, sent
            )
            return sent
        order = torch.argsort(self._owners(rows), stable=True)
        entries, start = _joined(rows[order], values[order] * factor).flatten(), 0
        for part in parts:
            part[width:] = entries[start : start + len(part) - width]
            start += len(part) - width
        return sent

    def _sum_of_rows(self, messages: Sequence[Tensor], dim: int) -> tuple[Tensor, Tensor]:
        """The different rows of entries, and the sum of the values of each, (m, d).

        Those of a divided table are numbered from the first row of this process on.
        """
        table, first = self._groups[1][0], 0 if self.divided is None else self.divided.first_row
        if messages[0].dtype == torch.float32 and native.serves(*messages):
            if len(self._slots) != len(table):
                self._slots = torch.full((len(table),), -1, dtype=torch.int32)
            return native.add_entries(messages, dim, first, self._slots)
        rows, values = _parted(torch.cat(list(messages)), dim)
        summed = _sparse(rows - first, values, table.shape).coalesce()
        return summed.indices()[0], summed.values()


def _sparse(rows: Tensor, values: Tensor, shape: torch.Size, *, is_coalesced: bool = False) -> Tensor:
    # Said, or else torch warns.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, is_coalesced=is_coalesced)


def _joined(rows: Tensor, values: Tensor) -> Tensor:
    """Values (n, d) and, behind them, the numbers of their rows: the bits of a number are one or two floats."""
    return torch.cat([values, rows.unsqueeze(1).view(values.dtype)], 1)


def _parted(entries: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Rows and values that `_joined` has put together, here as a vector."""
    entries = entries.view(-1, dim + 8 // entries.element_size())
    return entries[:, dim:].contiguous().view(torch.int64).flatten(), entries[:, :dim].contiguous()
