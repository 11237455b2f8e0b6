import pytest

from daes.backbone import WideDeep


@pytest.mark.parametrize("raw_dim", [0, 2])
def test_equals_its_formula(slow, raw_dim):
    slow.check(
        WideDeep(4, 3, raw_dim=raw_dim, hidden=(5, 4)),
        lambda p, e, raw: slow.linear(p, e) + slow.mlp(p, slow.flat(e, raw)),
    )


def test_has_one_bias_at_its_end(slow):
    biases = [name for name, _ in WideDeep(4, 3, batch_norm=False, hidden=()).named_parameters() if "bias" in name]
    assert biases == ["mlp.readout.bias"]
