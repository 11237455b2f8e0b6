from copy import deepcopy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from daes import native
from daes.backbone import dcnv2
from daes.backbone.dcnv2 import DCNv2
from daes.backbone.layers import Readout
from daes.native import crosses, products, threads


@pytest.mark.parametrize("plain_dim", [0, 2])
@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_its_formula(slow, layers, rank, plain_dim):
    def formula(p, e, plain):
        first = slow.flat(e, plain)
        crossed = first
        for layer in range(layers):
            name = f"cross.maps.{layer}"
            if rank is None:
                mapped, bias = slow.apply(p[f"{name}.weight"], crossed), p[f"{name}.bias"]
            else:
                mapped = slow.apply(p[f"{name}.1.weight"], slow.apply(p[f"{name}.0.weight"], crossed))
                bias = p[f"{name}.1.bias"]
            crossed = [x0 * (y + b) + x for x0, y, b, x in zip(first, mapped, bias, crossed, strict=True)]
        both = [*crossed, *slow.hidden(p, "deep", first, batch_norm=False)]
        return slow.dot(p["readout.weight"][0], both) + p["readout.bias"][0]

    slow.check(DCNv2(4, 3, plain_dim=plain_dim, hidden=(5, 4), layers=layers, rank=rank), formula)


@pytest.mark.parametrize("option", [{"layers": 0}, {"rank": 0}])
def test_options_must_be_positive(option):
    with pytest.raises(ValueError, match="must be positive"):
        DCNv2(4, 3, **option)


def make(fields=3, dim=2, plain_dim=1, layers=3, hidden=(5, 4), slope=0.1):
    torch.manual_seed(0)
    return DCNv2(fields, dim, plain_dim=plain_dim, layers=layers, hidden=hidden, slope=slope)


def rows_of(backbone, count, **options):
    return (
        torch.randn(count, backbone.num_fields, backbone.dim, **options),
        torch.randn(count, backbone.plain_dim, **options) if backbone.plain_dim else None,
    )


def is_fast(backbone):
    found = backbone._weights()
    fits = found is not None and dcnv2._fit(torch.zeros(1, backbone.input_dim), *found[0])
    return fits or native._library is None


class TestFewOperations:
    """The network in single precision on the CPU against the same by autograd in double precision."""

    @pytest.mark.parametrize("smallest", [1, 2**40])
    @pytest.mark.parametrize("options", [{}, {"plain_dim": 0, "dim": 8}, {"hidden": ()}, {"slope": 0.0, "layers": 1}])
    @pytest.mark.parametrize("rows", [0, 1, 50])
    @pytest.mark.parametrize("many", [2, 1000])
    def test_gradients(self, rows, options, smallest, many, monkeypatch):
        monkeypatch.setattr(products, "_SMALLEST", smallest)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(crosses, "_ROWS", 16)
        monkeypatch.setattr(threads, "MANY_ROWS", many)  # from 2 rows on by two threads
        backbone = make(**options)
        given = [one for one in rows_of(backbone, rows, requires_grad=True) if one is not None]
        weights = torch.randn(rows)
        assert is_fast(backbone)
        logits = backbone(*given)
        found = torch.autograd.grad(logits, [*given, *backbone.parameters()], weights)
        slow, twice = deepcopy(backbone).double(), [one.detach().double().requires_grad_() for one in given]
        assert slow._weights() is None
        assert torch.allclose(logits.double(), slow(*twice), atol=1e-5)
        expected = torch.autograd.grad(slow(*twice), [*twice, *slow.parameters()], weights.double())
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-4)

    def test_gradients_that_are_not_wanted(self):
        backbone = make()
        given = rows_of(backbone, 5)
        backbone(*given).sum().backward()
        expected = backbone.cross.maps[0].weight.grad
        for one in (backbone.readout.weight, backbone.deep[0].bias):
            one.requires_grad = False
            one.grad = None
        backbone.zero_grad()
        backbone(*given).sum().backward()
        assert torch.equal(backbone.cross.maps[0].weight.grad, expected)
        assert backbone.readout.weight.grad is None

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_without_gradients(self, mode, monkeypatch):
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(crosses, "_ROWS", 2)
        monkeypatch.setattr(threads, "MANY_ROWS", 2)
        backbone = make()
        given = rows_of(backbone, 9)
        expected = backbone(*given).detach()
        with mode():
            assert torch.equal(backbone(*[one.clone() for one in given]), expected)

    def test_a_cross_more_is_not_left_out(self):
        backbone = make()
        backbone.cross.maps.append(torch.nn.Linear(backbone.input_dim, backbone.input_dim))
        given = rows_of(backbone, 5)
        assert not is_fast(backbone) or native._library is None
        expected = deepcopy(backbone).double()(*[one.double() for one in given])
        assert torch.allclose(backbone(*given).double(), expected, atol=1e-5)

    @pytest.mark.parametrize("name", ["cross", "cross.maps.1", "deep", "deep.0", "readout"])
    def test_a_hook_is_called(self, name):
        backbone, seen = make(), []
        backbone.get_submodule(name).register_forward_hook(lambda *_: seen.append(1))
        assert not is_fast(backbone) or native._library is None
        backbone(*rows_of(backbone, 3))
        assert seen == [1]

    def test_what_else_does_not_fit(self):
        assert not is_fast(DCNv2(3, 2, dropout=0.5)) or native._library is None
        assert not is_fast(DCNv2(3, 2, batch_norm=True)) or native._library is None
        assert is_fast(DCNv2(3, 2, dropout=0.5).eval())
        backbone = make()
        backbone.cross.maps[0].bias = None
        assert backbone(*rows_of(backbone, 3)).shape == (3,)

    @pytest.mark.parametrize("smallest", [1, 2**40])
    def test_what_else_follows_operations(self, smallest, monkeypatch):
        monkeypatch.setattr(products, "_SMALLEST", smallest)
        backbone = make(plain_dim=0)
        (inputs, _) = rows_of(backbone, 3, requires_grad=True)
        jacobian = torch.autograd.functional.jacobian(backbone, inputs)
        checkpoint(backbone, inputs, use_reentrant=False).sum().backward()
        assert torch.allclose(inputs.grad, jacobian.sum(0), atol=1e-5)
        for other in (
            torch.autograd.functional.jacobian(backbone, inputs, vectorize=True),
            torch.func.jacrev(backbone)(inputs),
            torch.func.jacfwd(backbone)(inputs),
        ):
            assert torch.allclose(other, jacobian, atol=1e-5)
        traced = torch.jit.trace(backbone, (inputs,))
        assert torch.allclose(traced(inputs), backbone(inputs), atol=1e-6)

    def test_second_derivatives(self):
        backbone = make(plain_dim=0)
        (inputs, _) = rows_of(backbone, 2)
        slow = deepcopy(backbone).double()
        found = torch.autograd.functional.hessian(lambda given: backbone(given).square().sum(), inputs)
        expected = torch.autograd.functional.hessian(lambda given: slow(given).square().sum(), inputs.double())
        assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)

    def test_a_readout_of_parts(self):
        parts, readout = [torch.randn(5, 3), torch.randn(5, 2)], Readout(5)
        assert torch.allclose(readout.of_parts(*parts), readout(torch.cat(parts, 1)), atol=1e-6)
        readout.register_forward_hook(lambda *_: torch.zeros(5))
        assert not readout.of_parts(*parts).any()
