import pytest
import torch
from torch import nn

from daes.training.optimizer import Adagrad
from daes.training.processes.common import CommonParameters


@pytest.mark.parametrize("learns", [True, False])
def test_the_table_learns_whether_or_not_dense_parameters_do(learns):
    """As where a network is frozen and only the rows of ids are learned."""
    dense, table = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4, 2))
    optimizer = Adagrad([dense, table], 0.1)
    common = CommonParameters([dense], table, optimizer, rank=0, count=1, buffers=1)
    dense.grad = torch.full((3,), 0.5) if learns else None
    table.grad = torch.sparse_coo_tensor(
        [[1]], torch.tensor([[1.0, -1.0]]), (4, 2), is_coalesced=True, check_invariants=False
    )
    loss = torch.tensor(2.0)
    common.put([dense] if learns else [], [loss], 1.0)
    assert common.take([loss]) == [loss]
    common.step()
    torch.testing.assert_close(table.detach(), torch.tensor([[1.0, 1.0], [0.9, 1.1], [1.0, 1.0], [1.0, 1.0]]))
    torch.testing.assert_close(dense.detach(), torch.full((3,), 0.9 if learns else 1.0))
