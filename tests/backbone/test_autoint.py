from math import exp

import pytest

from daes.backbone.autoint import AutoInt


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_equals_its_formula(slow, layers, deep):
    heads, head_dim = 2, 3

    def attend(p, name, x):
        query, key, value, residual = (
            [slow.apply(p[f"{name}.{part}.weight"], v) for v in x] for part in ("query", "key", "value", "residual")
        )
        out = []
        for i in range(len(x)):
            mixed = []
            for head in range(heads):
                part = slice(head * head_dim, (head + 1) * head_dim)
                scores = [exp(slow.dot(query[i][part], key[j][part])) for j in range(len(x))]
                for c in range(part.start, part.stop):
                    mixed.append(sum(scores[j] * value[j][c] for j in range(len(x))) / sum(scores))
            out.append([max(m + r, 0.0) for m, r in zip(mixed, residual[i], strict=True)])
        return out

    def formula(p, e, plain):
        x = e
        for layer in range(layers):
            x = attend(p, f"attention.{layer}", x)
        logit = slow.dot(p["readout.weight"][0], slow.flat(x))
        return logit + (slow.mlp(p, slow.flat(e, plain)) if deep else p["readout.bias"][0])

    settings = {"plain_dim": 2, "hidden": (5, 4)} if deep else {}
    slow.check(AutoInt(4, 3, layers=layers, heads=heads, head_dim=head_dim, deep=deep, **settings), formula)


def test_without_its_mlp_it_refuses_plain_inputs():
    with pytest.raises(ValueError, match="plain_dim must be 0 for AutoInt,"):
        AutoInt(4, 3, plain_dim=2, deep=False)


@pytest.mark.parametrize("option", ["layers", "heads", "head_dim"])
def test_counts_must_be_positive(option):
    with pytest.raises(ValueError, match=f"{option} must be positive, got 0"):
        AutoInt(4, 3, **{option: 0})
