from math import sqrt

import pytest

from daes.backbone.masknet import MaskNet


def layer_norm(values):
    mean = sum(values) / len(values)
    var = sum((x - mean) ** 2 for x in values) / len(values)
    return [(x - mean) / sqrt(var + 1e-5) for x in values]


@pytest.mark.parametrize("reduction_ratio", [0.5, 2.0])
@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim, reduction_ratio):
    blocks = 2

    def affine(p, name, values):
        return [y + b for y, b in zip(slow.apply(p[f"{name}.weight"], values), p[f"{name}.bias"], strict=True)]

    def formula(p, e, plain):
        inputs = slow.flat(e, plain)
        normed = [
            [x * g + s for x, g, s in zip(layer_norm(v), gain, shift, strict=True)]
            for v, gain, shift in zip(e, p["norm.gain"], p["norm.shift"], strict=True)
        ]
        outputs = []
        for block in range(blocks):
            name = f"blocks.{block}"
            mask = affine(p, f"{name}.mask.2", [max(x, 0.0) for x in affine(p, f"{name}.mask.0", inputs)])
            masked = [z * m for z, m in zip(slow.flat(normed, plain), mask, strict=True)]
            made = layer_norm(slow.apply(p[f"{name}.project.0.weight"], masked))
            gain, shift = p[f"{name}.project.1.weight"], p[f"{name}.project.1.bias"]
            outputs += [max(x * g + s, 0.0) for x, g, s in zip(made, gain, shift, strict=True)]
        return slow.mlp(p, outputs)

    model = MaskNet(
        4, 3, plain_dim=plain_dim, hidden=(5, 4), blocks=blocks, block_dim=6, reduction_ratio=reduction_ratio
    )
    assert model.blocks[0].mask[0].out_features == round((12 + plain_dim) * reduction_ratio)
    slow.check(model, formula)


@pytest.mark.parametrize("option", ["blocks", "block_dim"])
def test_counts_must_be_positive(option):
    with pytest.raises(ValueError, match=f"{option} must be positive, got 0"):
        MaskNet(4, 3, **{option: 0})


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan")])
def test_reduction_ratio_must_be_above_zero(ratio):
    with pytest.raises(ValueError, match="reduction_ratio must be a finite number above zero"):
        MaskNet(4, 3, reduction_ratio=ratio)
