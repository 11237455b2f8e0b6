"""The gradients of a step that several processes take together."""

from collections.abc import Sequence
from functools import cached_property
from math import hypot, sqrt

import numpy as np
import torch
from torch import Tensor, nn

from daes.embedding import DividedEmbedding
from daes.model import CTRModel
from daes.native import tensors as native
from daes.training.optimizer import Adagrad, Optimizers, coalesced
from daes.training.processes.common import CommonParameters
from daes.training.processes.group import Processes


class GradientExchange:
    """Averages the gradients of a step over the rows of all processes.

    The rows of process r have the weight W_r and the mean loss L_r. The gradient becomes that of Σ W_r L_r / Σ W_r: the
    mean over all rows of the step, however many of them a process has, also none. Running statistics of BatchNorm are
    averaged the same way.

    The sum is divided among the processes: each receives and adds its share of all gradients. Of a table with sparse
    gradients only the rows that were looked up are sent, and row i belongs to the share of process i mod N. The sums of
    dense parameters are sent to all processes. So are those of a table, unless the processes share its memory
    or it is a `DividedEmbedding`, whose rows belong to the share of the process that has them: then each
    process keeps the sums of its share, and its optimiser changes only these rows. Without tables with sparse
    gradients, as on CUDA devices, `torch.distributed` computes the sums.

    Processes that share memory have one copy of all parameters (`divide`): each adds up and applies its share of all
    gradients, dense ones included, and nothing is sent back.

    Every process gets the same bits, so that parameters stay equal if they were equal before.
    """

    def __init__(self, model: CTRModel, processes: Processes) -> None:
        self.model = model
        self.processes = processes
        self.divided = model.categorical if isinstance(model.categorical, DividedEmbedding) else None
        self.common: CommonParameters | None = None
        """The parameters, if all processes have them in one memory."""
        self.shares: list[Tensor] = []
        """The gradients of the last step of which this process has only its share, to read and to scale."""
        self.norm_of_shares = 0.0
        """The norm of these gradients over all processes."""
        self._flat = torch.empty(0)
        self._slots = torch.empty(0, dtype=torch.int32)  # scratch memory of the compiled sum

    @torch.no_grad()
    def __call__(self, loss: Tensor, weight: float, row: int, buffers: list[Tensor]) -> Tensor:
        """Replace all gradients, and the buffers, by their mean over the rows of all processes; returns the mean loss.

        Gradients are then views of memory that the next call overwrites.

        Args:
            loss: this process's mean loss, a scalar.
            weight: the number of its rows, or their total weight; 0 for none.
            row: the row of the stream at which the step is, the same in all processes.
            buffers: further tensors to average.
        """
        dense, tables = self._groups
        dense = [one for one in dense if one.requires_grad]  # a frozen one must not decay
        if self.common is not None:
            return self._in_memory(self.common, dense, loss, weight, row, buffers)
        tensors = [torch.zeros_like(one) if one.grad is None else one.grad for one in dense]
        tensors += [*buffers, loss.to((tensors or [loss])[0].dtype)]
        sizes = [tensor.numel() for tensor in tensors]
        flat = self._memory_for(sum(sizes), tensors[0])[: sum(sizes)]
        torch.cat([tensor.reshape(-1) for tensor in tensors], out=flat)
        if tables:
            rows, values, to = self._rows()
            share, of = self._share(row, weight, to)
            rows, values = self._sum(rows, values, share, to, of)
            tables[0].grad = _sparse(rows, values, tables[0].shape, is_coalesced=True)
            self.shares = [] if self.divided is None else [tables[0].grad._values()]
        else:
            share, _ = self._share(row, weight, [])
            flat *= share
            self.processes.add(flat)
        mean = torch.split(flat, sizes)
        for parameter, gradient in zip(dense, mean, strict=False):
            parameter.grad = gradient.view_as(parameter)
        for buffer, average in zip(buffers, mean[len(dense) :], strict=False):
            buffer.copy_(average.view_as(buffer))
        return mean[-1][0].to(loss.dtype)

    def _share(self, row: int, weight: float, to: list[int]) -> tuple[float, list[int]]:
        """This process's part of the weight of all rows, and how many rows of its share of a table each process has."""
        everyone = self.processes.gather_numbers("step", row, weight, *to)
        total = float(everyone[:, 0].sum())
        share = weight / total if total > 0 else 1 / self.processes.count
        return share, everyone[:, 1 + self.processes.rank].astype(int).tolist() if to else []

    def _in_memory(
        self,
        common: CommonParameters,
        dense: list[nn.Parameter],
        loss: Tensor,
        weight: float,
        row: int,
        buffers: list[Tensor],
    ) -> Tensor:
        """As a call, if processes share memory: the gradients of this process's share, which `common` has then."""
        rows, values, to = self._rows()
        share, of = self._share(row, weight, to)
        common.put(dense, [*buffers, loss], share)
        each = values.shape[1] + 8 // values.element_size()
        sizes = [each * number for number in to]
        sent = self._packed(rows, values, share, sizes)
        received = self.processes.swap_rows(sent, sizes, [each * number for number in of])  # all have put theirs
        rows, values = self._sum_of_rows(received, values.shape[1])
        (table,) = self._groups[1]
        table.grad = _sparse(rows, values, table.shape, is_coalesced=True)
        *means, loss_of_all = common.take([*buffers, loss])
        for buffer, average in zip(buffers, means, strict=True):
            buffer.copy_(average)
        self.shares = common.gradients()
        self.norm_of_shares = hypot(*self.processes.gather_numbers("norm", row, norm_of(self.shares))[:, 0])
        for parameter in dense:
            parameter.grad = None
        return loss_of_all.to(loss.dtype)

    def _memory_for(self, count: int, like: Tensor) -> Tensor:
        """The vector in which dense gradients are averaged, padded by zeros to pieces of equal size."""
        padded = -(-count // self.processes.count) * self.processes.count
        if len(self._flat) != padded or self._flat.dtype != like.dtype or self._flat.device != like.device:
            self._flat = like.new_zeros(padded)
        return self._flat

    @cached_property
    def _groups(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Parameters with dense and with sparse gradients, from the first step on."""
        return self.model.parameter_groups()

    @property
    def shared_table(self) -> Tensor | None:
        """The table whose gradient has only the rows of this process's share; None if there is none."""
        return self._groups[1][0] if self.common is not None or self.divided is not None else None

    def divide(self, optimizer: Adagrad) -> list[Tensor]:
        """Let each process change a share of all parameters; the tensors that the caller places in shared memory.

        There must be a table with sparse gradients, which is not divided.
        """
        dense, (table,) = self._groups
        buffers = 1 + sum(one.numel() for one in self.model.backbone.buffers())  # the loss, and those of BatchNorm
        self.common = CommonParameters(dense, table, optimizer, self.processes.rank, self.processes.count, buffers)
        return self.common.tensors

    def unite(self) -> None:
        """Let each process change its own copy of the parameters again."""
        self.common, self.shares = None, []

    def apply(self, optimizers: Optimizers) -> None:
        """The optimiser's step; if processes share memory, that of this process's share, and wait for the others."""
        if self.common is None:
            optimizers.step()
        else:
            self.common.step()
            self.processes.barrier()

    def _rows(self) -> tuple[Tensor, Tensor, list[int]]:
        """The rows (n,) of the table that have a gradient, each once, their gradients (n, d), and how many rows belong
        to the share of each process.
        """
        (table,) = self._groups[1]
        if self.divided is not None:
            rows, values = self.divided.gradient()
        elif table.grad is None:
            rows, values = torch.empty(0, dtype=torch.int64), torch.empty(0, table.shape[1], dtype=table.dtype)
        else:
            gradient = coalesced(table.grad)
            rows, values = gradient._indices()[0], gradient._values()
        return rows, values, np.bincount(self._owners(rows).numpy(), minlength=self.processes.count).tolist()

    def _owners(self, rows: Tensor) -> Tensor:
        return rows % self.processes.count if self.divided is None else self.divided.owners(rows)

    def _sum(self, rows: Tensor, values: Tensor, factor: float, to: list[int], of: list[int]) -> tuple[Tensor, Tensor]:
        """The sums over all processes of the dense gradients, in place, and of the rows of a table.

        Each process contributes its own numbers times its factor. This one has `to[r]` rows of process r's share, and
        process r has `of[r]` rows of this one's. If processes keep the rows of their shares, the sums are those of this
        process's share; in a divided table they are numbered from its first row on.
        """
        count, dim = self.processes.count, values.shape[1]
        width, each = len(self._flat) // count, dim + 8 // values.element_size()
        sizes = [width + each * number for number in to]
        sent = self._packed(rows, values, factor, sizes, width)
        received = self.processes.swap_rows(sent, sizes, [width + each * number for number in of])
        message = self.processes.send_buffer(width + 1, sent)
        piece = message[:width].copy_(received[0][:width])
        for one in received[1:]:
            piece += one[:width]
        rows, values = self._sum_of_rows([one[width:] for one in received], dim)
        message[width] = values.square().sum()
        if self.divided is not None:
            parts = self.processes.gather_rows(message, [width + 1] * count)
            self.norm_of_shares = sqrt(sum(one[width].item() for one in parts))
        else:
            piece = piece.clone()
            counts = self.processes.gather_rows(torch.tensor([len(rows)]), [1] * count)
            sizes = [width + each * int(number) for number in counts]
            parts = self.processes.gather_rows(torch.cat([piece, _joined(rows, values).flatten()]), sizes)
            rows, values = _parted(torch.cat([one[width:] for one in parts]), dim)
        torch.cat([one[:width] for one in parts], out=self._flat)
        return rows, values

    def _packed(self, rows: Tensor, values: Tensor, factor: float, sizes: list[int], width: int = 0) -> Tensor:
        """The messages to the processes: a piece of the dense gradients and the rows of the process's share."""
        sent = self.processes.send_buffer(sum(sizes), values)
        parts = torch.split(sent, sizes)
        for part, piece in zip(parts, torch.split(self._flat, width) if width else (), strict=False):
            torch.mul(piece, factor, out=part[:width])
        if values.dtype == torch.float32 and native.serves(rows, values):
            ends = np.cumsum([0, *sizes[:-1]]) + width
            native.pack(
                rows, values, factor, len(sizes), 0 if self.divided is None else self.divided.rows_each, ends, sent
            )
            return sent
        order = torch.argsort(self._owners(rows), stable=True)
        entries = _joined(rows[order], values[order] * factor).flatten()
        for part, own in zip(parts, torch.split(entries, [size - width for size in sizes]), strict=True):
            part[width:] = own
        return sent

    def _sum_of_rows(self, messages: Sequence[Tensor], dim: int) -> tuple[Tensor, Tensor]:
        """The distinct rows in these messages, and the sum of the values of each, (m, d).

        Rows of a divided table are numbered from the first row of this process on.
        """
        table, first = self._groups[1][0], 0 if self.divided is None else self.divided.first_row
        if messages[0].dtype == torch.float32 and native.serves(*messages):
            if len(self._slots) != len(table):
                self._slots = torch.full((len(table),), -1, dtype=torch.int32)
            return native.add_entries(messages, dim, first, self._slots)
        rows, values = _parted(torch.cat(list(messages)), dim)
        summed = _sparse(rows - first, values, table.shape).coalesce()
        return summed.indices()[0], summed.values()


def norm_of(gradients: Sequence[Tensor]) -> float:
    """The Euclidean norm of all numbers of some gradients."""
    if native.serves(*gradients) and all(one.dtype == torch.float32 for one in gradients):
        return native.norm(gradients)
    return hypot(*(float(torch.linalg.vector_norm(one)) for one in gradients))


def _sparse(rows: Tensor, values: Tensor, shape: torch.Size, *, is_coalesced: bool = False) -> Tensor:
    # Without `check_invariants` torch warns.
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, is_coalesced=is_coalesced, check_invariants=False)


def _joined(rows: Tensor, values: Tensor) -> Tensor:
    """Values (n, d) followed by the numbers of their rows, whose bits take the place of one or two floats."""
    return torch.cat([values, rows.unsqueeze(1).view(values.dtype)], 1)


def _parted(entries: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Rows and values from a vector of entries that `_joined` made."""
    entries = entries.view(-1, dim + 8 // entries.element_size())
    return entries[:, dim:].contiguous().view(torch.int64).flatten(), entries[:, :dim].contiguous()
