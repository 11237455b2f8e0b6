from copy import deepcopy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from daes import native
from daes.backbone import dcnv2
from daes.backbone.dcnv2 import DCNv2, MatrixCross
from daes.backbone.layers import Readout
from daes.native import products, whole


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


class TestFewOperations:
    """The crosses in single precision on the CPU against the same by autograd in double precision."""

    @pytest.mark.parametrize("smallest", [1, 2**40])
    @pytest.mark.parametrize("width", [7, 8, 30])
    @pytest.mark.parametrize("rows", [0, 1, 50])
    @pytest.mark.parametrize("many", [2, 1000])
    def test_gradients(self, rows, width, smallest, many, monkeypatch):
        monkeypatch.setattr(products, "_SMALLEST", smallest)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(dcnv2, "_ROWS", 16)
        monkeypatch.setattr(whole, "MANY_ROWS", many)  # from 2 rows on by two threads
        torch.manual_seed(0)
        cross, inputs = MatrixCross(width, 3, None), torch.randn(rows, width, requires_grad=True)
        weights = torch.randn(rows, width)
        assert cross._weights(inputs) is not None or native._library is None
        outputs = cross(inputs)
        found = torch.autograd.grad(outputs, [inputs, *cross.parameters()], weights)
        slow, twice = deepcopy(cross).double(), inputs.detach().double().requires_grad_()
        assert slow._weights(twice) is None
        assert torch.allclose(outputs.double(), slow(twice), atol=1e-5)
        expected = torch.autograd.grad(slow(twice), [twice, *slow.parameters()], weights.double())
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-4)

    def test_parts_of_a_gradient_that_is_one_number(self, monkeypatch):
        monkeypatch.setattr(products, "_SMALLEST", 1)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(dcnv2, "_ROWS", 2)
        torch.manual_seed(0)
        cross, inputs = MatrixCross(6, 2, None), torch.randn(5, 6)
        cross(inputs).sum().backward()
        slow = deepcopy(cross).double()
        slow.zero_grad()
        slow(inputs.double()).sum().backward()
        for one, other in zip(cross.parameters(), slow.parameters(), strict=True):
            assert torch.allclose(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_without_gradients(self, mode, monkeypatch):
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(dcnv2, "_ROWS", 2)
        monkeypatch.setattr(whole, "MANY_ROWS", 2)
        cross, inputs = MatrixCross(6, 2, None), torch.randn(9, 6)
        expected = cross(inputs).detach()
        with mode():
            assert torch.equal(cross(inputs.clone()), expected)

    def test_a_hook_is_called(self):
        cross, seen = MatrixCross(4, 2, None), []
        cross.maps[1].register_forward_hook(lambda *_: seen.append(1))
        cross(torch.randn(3, 4))
        assert seen == [1]

    @pytest.mark.parametrize("smallest", [1, 2**40])
    def test_what_else_follows_operations(self, smallest, monkeypatch):
        monkeypatch.setattr(products, "_SMALLEST", smallest)
        torch.manual_seed(0)
        cross, inputs = MatrixCross(5, 2, None), torch.randn(3, 5, requires_grad=True)
        jacobian = torch.autograd.functional.jacobian(cross, inputs)
        checkpoint(cross, inputs, use_reentrant=False).sum().backward()
        assert torch.allclose(inputs.grad, jacobian.sum((0, 1)), atol=1e-5)
        for other in (
            torch.autograd.functional.jacobian(cross, inputs, vectorize=True),
            torch.func.jacrev(cross)(inputs),
            torch.func.jacfwd(cross)(inputs),
        ):
            assert torch.allclose(other, jacobian, atol=1e-5)
        traced = torch.jit.trace(cross, (inputs,))
        assert torch.allclose(traced(inputs), cross(inputs), atol=1e-6)

    def test_second_derivatives(self):
        torch.manual_seed(0)
        cross, inputs = MatrixCross(5, 2, None), torch.randn(2, 5)
        slow = deepcopy(cross).double()
        found = torch.autograd.functional.hessian(lambda given: cross(given).square().sum(), inputs)
        expected = torch.autograd.functional.hessian(lambda given: slow(given).square().sum(), inputs.double())
        assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)

    def test_shapes_and_uses_as_of_any_module(self):
        cross = MatrixCross(5, 2, None)
        assert cross(torch.randn(2, 3, 5)).shape == (2, 3, 5)
        cross(torch.randn(3, 5)).relu_().view(-1)
        cross.maps[0].bias = None
        assert cross(torch.randn(3, 5)).shape == (3, 5)

    def test_a_readout_of_parts(self):
        parts, readout = [torch.randn(5, 3), torch.randn(5, 2)], Readout(5)
        assert torch.allclose(readout.of_parts(*parts), readout(torch.cat(parts, 1)), atol=1e-6)
        readout.register_forward_hook(lambda *_: torch.zeros(5))
        assert not readout.of_parts(*parts).any()
