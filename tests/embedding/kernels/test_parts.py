"""The oracle is torch's sum in float64."""

import pytest
import torch

pytest.importorskip("triton")


@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (2, 3, 0), (7, 130), (33, 2, 3, 11), (324, 3)])
def test_parts_are_summed_up(kernel_device, shape):
    from daes.embedding.kernels.parts import sum_parts

    parts = torch.randn(shape)
    found = sum_parts(parts.to(kernel_device))
    assert found.shape == shape[1:]
    torch.testing.assert_close(found.cpu().double(), parts.double().sum(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum_parts(parts.to(kernel_device)), found, rtol=0, atol=0)
