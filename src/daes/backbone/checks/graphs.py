"""Checks of backbones as graphs: compiled, exported, and as ONNX."""

import torch

from daes.backbone.checks.sample import Make, fresh, make_inputs, trained
from daes.checking import ensure_close, ensure_same_state, export_program, onnx_session, seeded, state_of


def check_compile(make: Make) -> None:
    """`torch.compile` gives one graph for batches of any size, with the same logits and statistics in training."""
    torch._dynamo.reset()
    eager, backbone = fresh(make), fresh(make)
    compiled = torch.compile(backbone, backend="eager", fullgraph=True, dynamic=True)
    for rows in (6, 7):
        with seeded(rows):
            expected = eager(*make_inputs(eager, rows))
        with seeded(rows):
            result = compiled(*make_inputs(eager, rows))
        ensure_close(result, expected, "logits in training, compiled and not", tolerance=1e-4)
    ensure_same_state(state_of(backbone), state_of(eager), "the state after training, compiled and not")


def check_export(make: Make) -> None:
    """`torch.export` returns a program for batches of any size, with the same logits."""
    backbone = trained(make)
    program = export_program(backbone, make_inputs(backbone, 6)).module()
    for rows in (9, 1, 0):
        inputs = make_inputs(backbone, rows)
        ensure_close(program(*inputs), backbone(*inputs), "logits, exported and not", tolerance=1e-4)


def check_onnx(make: Make) -> None:
    """As ONNX in onnxruntime, a backbone returns the same as in torch, for batches of any size."""
    backbone = trained(make)
    session = onnx_session(export_program(backbone, make_inputs(backbone, 6)))
    names = [entry.name for entry in session.get_inputs()]
    for rows in (9, 1, 0):
        inputs = make_inputs(backbone, rows)
        (result,) = session.run(None, dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True)))
        ensure_close(torch.from_numpy(result), backbone(*inputs), "logits in onnxruntime and in torch", tolerance=1e-4)
