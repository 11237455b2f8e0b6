from math import exp, log

import pytest
import torch

from daes.backbone.afn import AFN


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("deep", [True, False])
def test_equals_its_formula(slow, deep, batch_norm):
    floor, neurons = 0.05, 5

    def formula(p, e, plain):
        dim = len(e[0])
        logs = [[log(max(abs(x), floor)) for x in vector] for vector in e]
        if batch_norm:
            by_coordinate = [slow.norm(p, "logarithmic.log_norm", [v[c] for v in logs]) for c in range(dim)]
            logs = [list(vector) for vector in zip(*by_coordinate, strict=True)]
        products = [
            [exp(sum(w * logs[i][c] for i, w in enumerate(exponents))) for c in range(dim)]
            for exponents in p["logarithmic.exponents"]
        ]
        if batch_norm:
            by_coordinate = [slow.norm(p, "logarithmic.exp_norm", [v[c] for v in products]) for c in range(dim)]
            products = [list(vector) for vector in zip(*by_coordinate, strict=True)]
        logit = slow.mlp(p, slow.flat(products), batch_norm=batch_norm)
        return logit + (slow.mlp(p, slow.flat(e, plain), name="deep", batch_norm=batch_norm) if deep else 0.0)

    plain_dim = 2 if deep else 0
    model = AFN(
        4, 3, plain_dim=plain_dim, hidden=(5, 4), neurons=neurons, floor=floor, deep=deep, batch_norm=batch_norm
    )
    slow.check(model, formula, rows=12)


def test_the_floor_keeps_zeros_finite():
    model = AFN(4, 3, neurons=5)
    fields = torch.zeros(6, 4, 3, requires_grad=True)
    logit = model(fields)
    logit.sum().backward()
    assert torch.isfinite(logit).all()
    assert torch.isfinite(fields.grad).all()


def test_a_neuron_is_a_product_of_powers():
    model = AFN(3, 2, neurons=1, batch_norm=False)
    with torch.no_grad():
        model.logarithmic.exponents.copy_(torch.tensor([[2.0, -1.0, 0.0]]))
    fields = torch.rand(5, 3, 2) + 0.5
    torch.testing.assert_close(model.logarithmic(fields)[:, 0], fields[:, 0] ** 2 / fields[:, 1])


def test_without_its_mlp_it_refuses_plain_inputs():
    with pytest.raises(ValueError, match="plain_dim must be 0 for AFN,"):
        AFN(4, 3, plain_dim=2, deep=False)


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan"), float("inf")])
def test_floor_must_be_above_zero(floor):
    with pytest.raises(ValueError, match="floor must be a finite number above zero"):
        AFN(4, 3, floor=floor)
