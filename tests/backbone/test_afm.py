from math import exp

import pytest

from daes.backbone.afm import AFM


def test_equals_its_formula(slow):
    def formula(p, e, plain):
        products = [[a * b for a, b in zip(e[i], e[j], strict=True)] for i, j in slow.pairs(len(e))]
        scores = []
        for product in products:
            hidden = [
                max(x + c, 0.0)
                for x, c in zip(slow.apply(p["attention.0.weight"], product), p["attention.0.bias"], strict=True)
            ]
            scores.append(exp(slow.dot(p["attention.2.weight"][0], hidden)))
        pooled = [0.0] * len(e[0])
        for score, product in zip(scores, products, strict=True):
            pooled = [s + score / sum(scores) * x for s, x in zip(pooled, product, strict=True)]
        return slow.linear(p, e) + slow.dot(p["readout.weight"][0], pooled)

    slow.check(AFM(4, 3, attention_dim=5), formula)


def test_attention_dim_must_be_positive():
    with pytest.raises(ValueError, match="attention_dim must be positive, got 0"):
        AFM(4, 3, attention_dim=0)
