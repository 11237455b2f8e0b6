"""Checks of methods as graphs: compiled, exported, and as ONNX."""

from typing import Any

import torch
from torch import Tensor

from daes.checking import ensure, ensure_close, ensure_same_state, export_program, onnx_session, state_of
from daes.embedding.base import NumericalEmbedding
from daes.embedding.checks.sample import FlatOutputs, Make, Sample, make_sample, outputs, ready, started


def check_compile(make: Make) -> None:
    """`torch.compile` does not change outputs, gradients or statistics, in training and in `eval()`."""
    torch._dynamo.reset()
    eager, method = started(make), started(make)
    compiled = torch.compile(FlatOutputs(method), backend="aot_eager")
    for seed in range(2):
        sample = make_sample(eager, seed=seed)
        expected, result = FlatOutputs(eager)(sample.values, sample.context), compiled(sample.values, sample.context)
        ensure_close(result, expected, "outputs in training, compiled and not")
    for plain, other in zip(_gradients(expected, eager), _gradients(result, method), strict=True):
        ensure_close(other, plain, "gradients, compiled and not", tolerance=1e-4)
    ensure_same_state(state_of(method), state_of(eager), "the state after training, compiled and not")
    method.eval()
    with torch.no_grad():
        result = compiled(sample.values, sample.context)
    ensure_close(result, outputs(eager.eval(), sample.values, sample.context), "outputs in eval(), compiled and not")


def check_export(make: Make) -> None:
    """`torch.export` returns a program for batches of any size, with the same outputs."""
    method = ready(make)
    program = _export(method).module()
    for rows in (1, 50):
        sample = _hard_sample(method, rows)
        with torch.no_grad():
            result = program(sample.values, sample.context)
        ensure_close(result, outputs(method, sample.values, sample.context), "outputs, exported and not")


def check_onnx(make: Make) -> None:
    """As ONNX in onnxruntime, a method returns the same as in torch, for batches of any size."""
    method = ready(make)
    session = onnx_session(_export(method))
    names = [entry.name for entry in session.get_inputs()]
    for rows in (1, 50):
        sample = _hard_sample(method, rows)
        inputs = dict(zip(("values", "context"), (sample.values.numpy(), sample.context.numpy()), strict=True))
        (result,) = session.run(None, {name: inputs[name] for name in names})
        expected = outputs(method, sample.values, sample.context)
        ensure(result.shape == expected.shape, f"ONNX must give {tuple(expected.shape)}, got {result.shape}")
        ensure_close(torch.from_numpy(result), expected, "outputs in onnxruntime and in torch")


def _export(method: NumericalEmbedding) -> Any:
    sample = make_sample(method, 10)
    return export_program(FlatOutputs(method).eval(), (sample.values, sample.context))


def _hard_sample(method: NumericalEmbedding, rows: int) -> Sample:
    sample = make_sample(method, rows, seed=2)
    sample.values[::5] = torch.inf
    sample.values[1::5] = -torch.inf
    sample.values[2::5] *= 1e6
    return sample


def _gradients(result: Tensor, method: NumericalEmbedding) -> list[Tensor]:
    return list(torch.autograd.grad(result.square().sum(), list(method.parameters())))
