"""Products by oneDNN are those of torch, whatever the shapes, and leave to torch what they do not know."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from daes import native
from daes.backbone.layers import HiddenLayers
from daes.native import products

onednn = pytest.mark.skipif(
    not products._AVAILABLE or native._library is None, reason="oneDNN is not the quicker one here, or no loops"
)


@pytest.fixture(params=[1, 2**40], ids=["onednn", "blas"])
def smallest(request, monkeypatch):
    """Every product by oneDNN, if it is the quicker one here, or none."""
    monkeypatch.setattr(products, "_SMALLEST", request.param)


def close(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == torch.float32
    return torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5 * max(1, *expected.shape) ** 0.5)


@pytest.mark.usefixtures("smallest")
@pytest.mark.parametrize("seed", range(8))
def test_products_of_any_shape(seed):
    generator = torch.Generator().manual_seed(seed)
    rows, inputs, outputs = torch.randint(1, 70, (3,), generator=generator).tolist()
    rows = {0: 0, 1: 1}.get(seed, rows)
    x, weight = torch.randn(rows, inputs, generator=generator), torch.randn(outputs, inputs, generator=generator)
    bias, more = torch.randn(outputs, generator=generator), torch.randn(rows, outputs, generator=generator)
    expected = x.double() @ weight.double().t()
    assert close(products.product(x, weight), expected)
    assert close(products.product(x, weight, bias), expected + bias)
    assert close(products.product(x, weight, more), expected + more)
    assert close(products.product(x, weight.t().contiguous().t(), more), expected + more)
    expected = more.double().t() @ x.double()
    assert close(products.weight_gradient(more, x), expected)
    assert close(products.weight_gradient(more, x, weight), expected + weight)


@onednn
def test_columns_with_gaps_between_them_are_copied_first(monkeypatch):
    """oneDNN would multiply by plain loops otherwise."""
    monkeypatch.setattr(products, "_SMALLEST", 1)
    x, gradient = torch.randn(40, 24)[:, :21], torch.randn(40, 6)
    given = []
    operation = torch.ops.mkldnn._linear_pointwise.default

    def note(inputs, weight, *rest):
        given.append(weight.is_contiguous() or weight.t().is_contiguous())
        return operation(inputs, weight, *rest)

    monkeypatch.setattr(torch.ops.mkldnn._linear_pointwise, "default", note)
    assert close(products.weight_gradient(gradient, x), gradient.double().t() @ x.double())
    assert close(products.product(gradient, x[:6].t()), gradient.double() @ x[:6].double())
    assert given == [True, True]


def test_missing_values_and_infinities_stay():
    x, weight = torch.randn(200, 130), torch.randn(140, 130)
    x[3], x[5, 7] = torch.nan, torch.inf
    found = products.product(x, weight)
    assert found[3].isnan().all()
    assert found[5].isinf().all()
    assert found[[0, 1, 2, 4, 6]].isfinite().all()


@onednn
@pytest.mark.parametrize("bias", [False, True])
def test_gradients_of_layers(bias, monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", 1)
    torch.manual_seed(0)
    layer, x, weights = nn.Linear(9, 7, bias=bias), torch.randn(30, 9, requires_grad=True), torch.randn(30, 7)
    slow, twice = deepcopy(layer).double(), x.detach().double().requires_grad_()
    found = products.linear(x, layer.weight, layer.bias)
    assert found.grad_fn.name() == "_LinearBackward"
    assert close(found, slow(twice))
    own = torch.autograd.grad(found, [x, *layer.parameters()], weights)
    others = torch.autograd.grad(slow(twice), [twice, *slow.parameters()], weights.double())
    for one, other in zip(own, others, strict=True):
        assert close(one, other)
    (alone,) = torch.autograd.grad(products.linear(x.detach(), layer.weight, layer.bias).sum(), [layer.weight])
    assert close(alone, twice.detach().sum(0).expand(7, 9))


@onednn
def test_what_else_follows_operations(monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", 1)
    torch.manual_seed(0)
    layers = HiddenLayers(5, (4, 3), dropout=0.0, batch_norm=False, slope=0.1)
    x = torch.randn(3, 5, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(layers, x)
    for other in (
        torch.autograd.functional.jacobian(layers, x, vectorize=True),
        torch.func.jacrev(layers)(x),
        torch.func.jacfwd(layers)(x),
        torch.autograd.functional.jacobian(deepcopy(layers).double(), x.double()).float(),
    ):
        assert torch.allclose(other, jacobian, atol=1e-5)
    found = torch.autograd.functional.hessian(lambda given: layers(given).square().sum(), x.detach())
    slow = deepcopy(layers).double()
    expected = torch.autograd.functional.hessian(lambda given: slow(given).square().sum(), x.detach().double())
    assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)


@onednn
def test_what_differs_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", 1)
    layer, x = nn.Linear(5, 4), torch.randn(3, 5)

    def name(x=x, layer=layer):
        return products.linear(x, layer.weight, layer.bias).grad_fn.name()

    assert name() == "_LinearBackward"
    assert name(x.double(), deepcopy(layer).double()) != "_LinearBackward"
    assert name(torch.randn(2, 3, 5)) != "_LinearBackward"
    assert name(torch.randn(5, 3).t()) != "_LinearBackward"
    with torch.autocast("cpu", torch.bfloat16):
        assert products.linear(x, layer.weight, layer.bias).dtype == torch.bfloat16
    with monkeypatch.context() as patch:
        patch.setattr(torch._C, "_get_mkldnn_enabled", lambda: False)
        assert name() != "_LinearBackward"
    monkeypatch.setattr(products, "_SMALLEST", 3 * 5 * 4 + 1)
    assert name() != "_LinearBackward"


@onednn
def test_hidden_layers_call_hooks(monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", 1)
    layers, seen = HiddenLayers(5, (4,), dropout=0.0, batch_norm=False, slope=0.1), []
    layers[0].register_forward_hook(lambda *_: seen.append(1))
    layers(torch.randn(3, 5))
    assert seen == [1]
