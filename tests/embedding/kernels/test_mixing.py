"""The oracle is an einsum in float64."""

import pytest
import torch

from daes.embedding import kernels

pytest.importorskip("triton")


@pytest.mark.parametrize(("rows", "features", "count", "dim"), [(70, 3, 10, 16), (1, 2, 1, 5), (0, 2, 3, 4)])
@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("batch_last", [False, True])
def test_sums_and_gradients(kernel_device, rows, features, count, dim, squash, batch_last):
    torch.manual_seed(0)
    weights = torch.randn(rows, features, count)
    weights[:1, 0] = -torch.inf if squash else 0.0
    table, base, up = (
        torch.randn(features, count, dim),
        torch.randn(rows, features, dim),
        torch.randn(rows, features, dim),
    )
    mine = [tensor.to(kernel_device).requires_grad_() for tensor in (weights, table, base)]
    shaped = mine[0].permute(1, 2, 0).contiguous().permute(2, 0, 1) if batch_last else mine[0]
    found = kernels.mix(shaped, mine[1], None if batch_last else mine[2], beta=0.3, squash=squash)
    theirs = [tensor.double().requires_grad_() for tensor in (weights, table, base)]
    inner = torch.sigmoid(theirs[0]) if squash else theirs[0]
    expected = (0 if batch_last else theirs[2]) + 0.3 * torch.einsum("bqm,qmd->bqd", inner, theirs[1])
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    leaves = 2 if batch_last else 3
    gradients = torch.autograd.grad((found * up.to(kernel_device)).sum(), mine[:leaves])
    for one, other in zip(gradients, torch.autograd.grad((expected * up).sum(), theirs[:leaves]), strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-5, atol=1e-5)


def test_weights_that_lie_far_apart(kernel_device, tmp_path):
    """With the batch last, a feature's weights begin behind all rows of those before it: here behind 2^31 numbers."""
    weights, table, apart = torch.rand(2, 3, 1), torch.rand(3, 1, 4), 2**30
    on_cpu = kernel_device == "cpu"
    size = 2 * apart + 2
    memory = (
        torch.from_file(str(tmp_path / "sparse"), True, size) if on_cpu else torch.empty(size, device=kernel_device)
    )
    far = memory.as_strided(weights.shape, (1, apart, 1)).copy_(weights)
    found = kernels.mix(far, table.to(kernel_device), None, beta=1.0, squash=False)
    torch.testing.assert_close(found.cpu(), torch.einsum("bqm,qmd->bqd", weights, table))
