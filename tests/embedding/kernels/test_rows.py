"""The oracles are torch's look-up and the plain version of evidence."""

import pytest
import torch
from torch.nn.functional import embedding

from daes.embedding import kernels
from daes.embedding.categorical import CategoricalEmbedding
from daes.evidence import Evidence, EvidenceInputs

pytest.importorskip("triton")


@pytest.mark.parametrize(("shape", "dim"), [((40, 3), 16), ((7,), 5), ((0, 3), 4), ((3, 2), 1)])
def test_rows_are_looked_up_and_their_gradients_added_up(kernel_device, shape, dim):
    table = torch.randn(9, dim, device=kernel_device, requires_grad=True)
    rows = torch.randint(9, shape, device=kernel_device)
    weights = torch.randn(*shape, dim, device=kernel_device)
    mine, theirs = kernels.look_up(table, rows), embedding(rows, table)
    assert torch.equal(mine, theirs)
    gradients = [torch.autograd.grad((found * weights).sum(), table)[0] for found in (mine, theirs)]
    torch.testing.assert_close(*gradients)


def test_tables_use_it(kernel_device):
    table = CategoricalEmbedding([10, 20], 4).to(kernel_device)
    ids = torch.randint(100, (30, 2), device=kernel_device)
    torch.testing.assert_close(table(ids), embedding(table.rows(ids), table.weight), rtol=0, atol=0)
    assert "look_up" in type(table(ids).grad_fn).__name__


@pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}])
def test_evidence_is_that_of_the_plain_version(kernel_device, monkeypatch, options):
    counted = EvidenceInputs(Evidence(bins=8, pair_bins=4, sample_rows=300, **options), 3, [0, 5], 10)
    numbers = torch.randn(400, 3).round(decimals=1).masked_fill(torch.rand(400, 3) < 0.2, torch.nan)
    numbers[3, 1], numbers[4, 1] = torch.inf, -torch.inf
    rows = torch.stack([torch.randint(0, 5, (400,)), torch.randint(5, 10, (400,))], 1)
    with monkeypatch.context() as plain:
        plain.setattr(kernels, "DEVICES", set())
        before = counted(numbers, rows)
        counted.update(numbers, rows, (torch.rand(400) < 0.3).float())
        expected = counted(numbers, rows)
    assert not torch.equal(before, expected)
    found = counted.to(kernel_device)(numbers.to(kernel_device), rows.to(kernel_device))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)
    assert counted(numbers[:0].to(kernel_device), rows[:0].to(kernel_device)).shape == (0, expected.shape[1])
