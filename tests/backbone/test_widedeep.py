import pytest

from daes.backbone.widedeep import WideDeep


@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim):
    slow.check(
        WideDeep(4, 3, plain_dim=plain_dim, hidden=(5, 4)),
        lambda p, e, plain: slow.linear(p, e) + slow.mlp(p, slow.flat(e, plain)),
    )


def test_has_one_bias_at_its_end(slow):
    biases = [name for name, _ in WideDeep(4, 3, batch_norm=False, hidden=()).named_parameters() if "bias" in name]
    assert biases == ["mlp.readout.bias"]
