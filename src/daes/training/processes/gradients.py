"""The gradient of a step that several processes take together."""

import torch
from torch import Tensor, nn

from daes import native
from daes.model import CTRModel
from daes.training.optimizer import coalesced
from daes.training.processes.group import Processes


class GradientExchange:
    """Averages the gradients of a step over the rows of all processes.

    Process r's rows weigh W_r and have the mean loss L_r. The gradient becomes that of Σ W_r L_r / Σ W_r: the mean
    over all rows of the step, however many of them a process has, and also if it has none. Tables with sparse
    gradients exchange the rows that were looked up alone. Running statistics of BatchNorm are averaged the same way.

    Every process ends up with the same bits, so that parameters stay equal if they were equal before.

    Args:
        model: the model; it has its gradients when this is called.
        processes: who takes part.
    """

    def __init__(self, model: CTRModel, processes: Processes) -> None:
        self.model = model
        self.processes = processes
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
        dense, sparse = self.model.parameter_groups()
        tables = [_one_entry_per_row(parameter) for parameter in sparse]
        told = self.processes.meet("step", row, weight, *(table._nnz() for table in tables))
        total = float(told[:, 0].sum())
        share = weight / total if total > 0 else 1 / self.processes.count
        own = [torch.zeros_like(one) if one.grad is None else one.grad for one in dense]
        mean = _summed([*own, *buffers, loss.reshape(1).to(own[0] if own else loss)], share, self.processes)
        for parameter, gradient in zip(dense, mean, strict=False):
            parameter.grad = gradient
        for buffer, average in zip(buffers, mean[len(dense) :], strict=False):
            buffer.copy_(average)
        for place, (parameter, table) in enumerate(zip(sparse, tables, strict=True)):
            parameter.grad = self._sum_of_rows(table, share, told[:, 1 + place].int().tolist())
        return mean[-1][0].to(loss)

    def _sum_of_rows(self, table: Tensor, share: float, counts: list[int]) -> Tensor:
        """The sum of sparse gradients: rows that several processes have are there several times until coalesced."""
        rows, values = table.indices()[0], table.values() * share
        # The bits of a row's number are sent as one or two floats, so that one message has both.
        numbers = rows.unsqueeze(1).view(values.dtype)
        found = self.processes.gather_rows(torch.cat([numbers, values], 1), counts)
        where, values = found.split([numbers.shape[1], values.shape[1]], 1)  # type: ignore[no-untyped-call]
        where, values = where.contiguous().view(torch.int64).flatten(), values.contiguous()
        if values.dtype == torch.float32 and native.serves(where, values):
            if len(self._slots) != table.shape[0]:
                self._slots = torch.full((table.shape[0],), -1, dtype=torch.int32)
            return _sparse(*native.sum_rows(values.unsqueeze(1), where, self._slots), table.shape, is_coalesced=True)
        return _sparse(where, values, table.shape)


def _one_entry_per_row(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        none = torch.zeros(0, dtype=torch.int64, device=parameter.device)
        return _sparse(none, parameter.new_zeros(0, parameter.shape[1]), parameter.shape).coalesce()
    return coalesced(parameter.grad)


def _sparse(rows: Tensor, values: Tensor, shape: torch.Size, *, is_coalesced: bool = False) -> Tensor:
    # Said, or else torch warns.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, is_coalesced=is_coalesced)


def _summed(tensors: list[Tensor], share: float, processes: Processes) -> list[Tensor]:
    """The sums of the tensors of all processes, each times its share; one message for all of them."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]) * share
    processes.add(flat)
    return [
        piece.view_as(tensor)
        for piece, tensor in zip(torch.split(flat, [t.numel() for t in tensors]), tensors, strict=True)
    ]
