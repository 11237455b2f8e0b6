"""The parameters of a model in memory that several processes share."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from daes.training.optimizer import Adagrad


class CommonParameters:
    """Parameters of which all processes have one copy, and each changes a share.

    The dense ones are one vector, cut into equal pieces; of a table the process r of N has rows r, r + N, …. A step:
    every process puts its dense gradients where all can read them; each takes the sum of its piece, and applies it.

    The tensors must lie in shared memory before the first step (`SharedMemory.share`).

    Args:
        dense: parameters with dense gradients.
        table: the one with a sparse gradient, which the caller adds up.
        optimizer: that of all parameters.
        rank: of this process.
        count: of processes.
        buffers: so many numbers can be averaged beside gradients.
    """

    def __init__(
        self,
        dense: Sequence[nn.Parameter],
        table: nn.Parameter,
        optimizer: Adagrad,
        rank: int,
        count: int,
        buffers: int,
    ) -> None:
        self.rank, self.count = rank, count
        self._table, self._optimizer = table, optimizer
        self._width = -(-sum(one.numel() for one in dense) // count)
        like = dense[0] if dense else table
        self._put = torch.zeros(count, self._width * count + buffers, dtype=like.dtype)
        self._piece = torch.zeros(self._width, dtype=like.dtype)
        self._learned: list[nn.Parameter] | None = None
        self._own = Adagrad([], 0.0)
        self.tensors: list[Tensor] = [*optimizer.parameters, *optimizer.sums, self._put]
        """What all processes write."""

    def put(self, dense: list[nn.Parameter], others: Sequence[Tensor], factor: float) -> None:
        """Put the gradients of the parameters that learn, and others, times a factor, where all can read them."""
        if self._learned is None or [*map(id, dense)] != [*map(id, self._learned)]:
            self._learned, self._own = dense, self._own_part(dense)
            self._put[self.rank] = 0
        mine, place = self._put[self.rank], 0
        for one in dense:
            to = mine[place : place + one.numel()]
            to.zero_() if one.grad is None else torch.mul(one.grad.reshape(-1), factor, out=to)
            place += one.numel()
        place = self._width * self.count
        for other in others:
            torch.mul(other.reshape(-1), factor, out=mine[place : place + other.numel()])
            place += other.numel()

    def take(self, others: Sequence[Tensor]) -> list[Tensor]:
        """Once all have put theirs: the sums of other tensors; the gradients of this process's share are added up."""
        first = self._width * self.rank
        self._piece.copy_(self._put[0, first : first + self._width])
        for one in self._put[1:]:
            self._piece += one[first : first + self._width]
        sizes = [other.numel() for other in others]
        rest = self._put[:, self._width * self.count :][:, : sum(sizes)]
        total = rest[0].clone()
        for one in rest[1:]:
            total += one
        return [one.view_as(other) for one, other in zip(torch.split(total, sizes), others, strict=True)]

    def gradients(self) -> list[Tensor]:
        """The gradients of this process's share."""
        assert self._table.grad is not None
        return [self._piece, self._table.grad._values()]

    def step(self) -> None:
        """Apply the gradients of this process's share."""
        self._own.step()

    def _own_part(self, dense: list[nn.Parameter]) -> Adagrad:
        """The optimiser of this process's share."""
        start, parameters, sums = self._width * self.rank, [], []
        for one, place in zip(dense, accumulate((one.numel() for one in dense), initial=0), strict=False):
            first, last = max(start - place, 0), min(start + self._width - place, one.numel())
            if first < last:
                own = nn.Parameter(one.detach().view(-1)[first:last], requires_grad=False)
                own.grad = self._piece[place + first - start : place + last - start]
                parameters.append(own)
                sums.append(self._optimizer.sums[self._optimizer.place(one)].view(-1)[first:last])
        return self._optimizer.of(
            [*parameters, self._table], [*sums, self._optimizer.sums[self._optimizer.place(self._table)]]
        )
