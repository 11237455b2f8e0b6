"""Networks by compiled loops are what the plain version gives."""

import numpy as np
import pytest
import torch

from daes import native
from daes.model import CTRModel
from daes.simulation import AdStream
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")


@pytest.mark.parametrize(
    ("backbone", "options", "evidence"),
    [
        ("deepfm", {}, True),
        ("widedeep", {}, True),
        ("fnn", {"hidden": (7,)}, True),
        ("deepfm", {"hidden": (5, 3), "dropout": 0.5}, False),
        ("fnn", {"hidden": ()}, True),
        ("deepfm", {"batch_norm": True}, True),
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 77])
def test_logits_and_their_gradients(backbone, options, evidence, rows, plainly):
    stream = AdStream(num_rows=500, seed=0)
    batch = next(stream.iter_batches(stream.schema, 500))
    torch.manual_seed(0)
    model = CTRModel(
        stream.schema, backbone=backbone, dim=5, sizes=50, evidence=evidence, backbone_options=options
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.3, 0.3)
    prepared = model.prepare(batch)
    model.observe(*prepared.features)
    model.count(prepared)
    inputs, target = [tensor[:rows] for tensor in prepared.features], torch.randn(rows)

    def differentiated():
        model.zero_grad()
        logits = model(*inputs)
        (logits * target).sum().backward()
        none = torch.zeros(())
        return logits.detach(), {name: none if one.grad is None else one.grad for name, one in model.named_parameters()}

    found, gradients = differentiated()
    with plainly():
        expected, plain = differentiated()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for name in plain:
        torch.testing.assert_close(
            *torch.broadcast_tensors(gradients[name], plain[name]), rtol=1e-4, atol=1e-5, msg=name
        )


def test_a_network_with_hooks_is_called():
    stream = AdStream(num_rows=10, seed=0)
    model, batch, calls = CTRModel(stream.schema, sizes=10), next(stream.iter_batches(stream.schema, 10)), []
    assert model.backbone.network() is not None
    for module in (model.backbone, model.backbone.mlp, model.backbone.mlp.hidden[0], model.backbone.linear.readout):
        handle = module.register_forward_hook(lambda *_: calls.append(1))
        model(batch)
        handle.remove()
    assert len(calls) == 4


def test_second_derivatives_are_refused_instead_of_wrong(plainly):
    stream = AdStream(num_rows=10, seed=0)
    model, batch = CTRModel(stream.schema, sizes=10), next(stream.iter_batches(stream.schema, 10))
    with pytest.raises(RuntimeError, match="no second derivatives: set DAES_NATIVE=0"):
        torch.autograd.grad(model(batch).sum(), list(model.backbone.parameters()), create_graph=True)
    with plainly():
        torch.autograd.grad(model(batch).sum(), list(model.backbone.parameters()), create_graph=True)


def test_transforms_of_torch_func_are_left_to_torch():
    stream = AdStream(num_rows=10, seed=0)
    model, batch = CTRModel(stream.schema, sizes=10), next(stream.iter_batches(stream.schema, 10))
    model.observe(*(rows := model.prepare(batch).features))
    model.eval()

    def total(parameters):
        return torch.func.functional_call(model, parameters, rows).sum()

    parameters = dict(model.named_parameters())
    found = torch.func.grad(total)(parameters)
    expected = torch.autograd.grad(total(parameters), list(parameters.values()), allow_unused=True)
    for one, other in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-4, atol=1e-5)


def test_a_whole_pass_learns_the_same(plainly):
    stream = AdStream(num_rows=3000, seed=0)
    rows = next(stream.iter_batches(stream.schema, 3000))

    def passed():
        torch.manual_seed(0)
        step = TrainingStep(CTRModel(stream.schema, sizes=100), TrainConfig(batch_size=100))
        return np.concatenate([step.score_and_learn(rows[start : start + 100], start) for start in range(0, 3000, 100)])

    compiled = passed()
    with plainly():
        expected = passed()
    np.testing.assert_allclose(compiled, expected, rtol=2e-3, atol=2e-3)


def test_parts_of_a_network_have_the_same_rows():
    schema = AdStream(num_rows=10, seed=0).schema
    model = CTRModel(schema, sizes=10, dim=4).eval()
    numbers, ids = torch.zeros(6, schema.num_numerical), torch.ones(6, schema.num_categorical, dtype=torch.int64)
    with pytest.raises((RuntimeError, ValueError)):
        model(numbers, ids[:2])
    with pytest.raises((RuntimeError, ValueError)):
        model(numbers[:2], ids)
