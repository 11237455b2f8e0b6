"""The oracle is an einsum in float64."""

import pytest
import torch

from daes.embedding import kernels

pytest.importorskip("triton")


@pytest.mark.parametrize(
    ("contexts", "features", "rows", "width", "dim"),
    [(160, 3, 10, 16, 16), (33, 2, 11, 48, 5), (1, 1, 1, 1, 1), (0, 2, 3, 4, 4), (700, 1, 2, 3, 4)],
)
def test_tables_and_gradients(kernel_device, contexts, features, rows, width, dim):
    torch.manual_seed(0)
    vectors, projection = torch.randn(contexts, width), torch.randn(features, rows, width)
    table, up = torch.randn(features, rows, dim), torch.randn(contexts, features, rows, dim)
    mine = [tensor.to(kernel_device).requires_grad_() for tensor in (vectors, projection, table)]
    theirs = [tensor.double().requires_grad_() for tensor in (vectors, projection, table)]
    found = kernels.gate_tables(*mine, 0.3)
    factors = 0.3 * torch.sigmoid(torch.einsum("uc,qrc->uqr", *theirs[:2])) + 0.7
    expected = theirs[2] * factors.unsqueeze(-1)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad((found * up.to(kernel_device)).sum(), mine)
    for one, other in zip(gradients, torch.autograd.grad((expected * up).sum(), theirs), strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-4, atol=1e-4)
