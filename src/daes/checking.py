"""Shared by the check suites of methods and backbones: seeds, states, exports, comparisons with clear messages."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from daes.extras import require


def run_checks(checks: Mapping[str, Callable[[Any], None]], make: Any, skip: Iterable[str]) -> None:
    """Run all checks except those to skip; an AssertionError has the name of the check that fails."""
    if isinstance(make, nn.Module):
        raise TypeError(f"make must be a function that makes what is checked, got a {type(make).__name__}")
    skipped = set(skip)
    if unknown := skipped - checks.keys():
        raise ValueError(f"skip must hold names of checks, got {', '.join(sorted(unknown))}")
    for name, check in checks.items():
        if name not in skipped:
            try:
                check(make)
            except ImportError:  # of a package that the check needs
                raise
            except Exception as error:
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                raise AssertionError(f"{name}: {kind}{error}") from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers of the CPU within the block, and restore their state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the whole state: parameters, statistics and random state."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def export_program(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """The module as a `torch.export` program for batches of any size."""
    batch = torch.export.Dim("batch")
    with torch.no_grad():
        return torch.export.export(module, inputs, dynamic_shapes=tuple({0: batch} for _ in inputs))


def onnx_session(program: Any) -> Any:
    """A program in onnxruntime."""
    made: Any = torch.onnx.export(program, dynamo=True, verbose=False)
    model = made.model_proto.SerializeToString()
    return require("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])


def ensure(condition: bool, message: str) -> None:
    """Raise an AssertionError unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def error_of(call: Callable[[], object], *kinds: type[Exception], what: str) -> str:
    """The message of the error that a call must raise, of one of these kinds; `what` is for the AssertionError."""
    try:
        call()
    except kinds as error:
        return str(error)
    raise AssertionError(f"{what} must raise {' or '.join(f'a {kind.__name__}' for kind in kinds)}")


def ensure_finite(tensor: Tensor, what: str) -> None:
    """Every entry must be a finite number."""
    ensure(bool(torch.isfinite(tensor).all()), f"{what} must be finite")


def ensure_same(actual: Tensor, expected: Tensor, what: str) -> None:
    """Bitwise equal, with NaN equal to NaN."""
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=0, equal_nan=True, msg=lambda found: f"{what} must be the same: {found}"
    )


def ensure_same_state(actual: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    """The same entries, each bitwise equal."""
    ensure(actual.keys() == expected.keys(), f"{what} must have the same entries")
    for name, tensor in expected.items():
        ensure_same(actual[name], tensor, f"{what}, {name},")


def ensure_close(actual: Tensor, expected: Tensor, what: str, *, tolerance: float = 1e-5) -> None:
    """Equal up to a fraction of the largest entry."""
    scale = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        actual,
        expected,
        rtol=tolerance,
        atol=tolerance * scale,
        check_dtype=False,
        msg=lambda found: f"{what} must be close: {found}",
    )
