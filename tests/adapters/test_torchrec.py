import pytest
import torch

pytestmark = pytest.mark.engines
pytest.importorskip("torchrec", reason="torchrec is not installed")


def test_it_has_the_shape_of_the_original():
    from torchrec.models.dlrm import DenseArch

    from daes.adapters.torchrec import StreamingDenseArch

    values = torch.randn(5, 3)
    ours = StreamingDenseArch(3, [16, 8], dim=4)
    out = ours(values)
    assert out.shape == DenseArch(3, [16, 8])(values).shape == (5, 8)
    assert ours.method.distributions.count.tolist() == [5, 5, 5]
    out.sum().backward()
    assert ours.model._mlp[0]._linear.weight.grad is not None
