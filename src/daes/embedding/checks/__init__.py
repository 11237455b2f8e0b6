"""A check suite for all methods: import it to check your own method.

A method of this library passes every check: its outputs for ordinary and unusual values, what it learns and when, how
its state is saved and loaded, and that it can be compiled and exported.

>>> from daes.embedding import build_embedding
>>> from daes.embedding.checks import CHECKS, check_embedding
>>> check_embedding(lambda: build_embedding("ple", num_features=2, dim=4), skip=["check_onnx", "check_compile"])
>>> CHECKS["check_missing_values"](lambda: build_embedding("fe", num_features=2, dim=4))

Or with a separate test for each check:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_method(check):
        CHECKS[check](lambda: MyMethod(num_features=3, dim=4))
"""

from collections.abc import Iterable

from daes.checking import run_checks
from daes.embedding.checks import gradients, graphs, state, values
from daes.embedding.checks.sample import Check, Make

CHECKS: dict[str, Check] = {
    name: check
    for module in (values, gradients, state, graphs)
    for name, check in vars(module).items()
    if name.startswith("check_")
}
"""Name → check."""


def check_embedding(make: Make, *, skip: Iterable[str] = ()) -> None:
    """Run every check on a method; an AssertionError tells which one fails and why.

    The checks need the packages safetensors, onnx, onnxscript and onnxruntime, and take some seconds.

    Args:
        make: makes the method; called many times, with torch's random numbers seeded. Checks are fast with few
            features; there must be at least two.
        skip: names of `CHECKS` to skip, for what a method does not promise: order statistics, for example, depend on
            how a stream is split into batches (`check_batch_splits`).
    """
    run_checks(CHECKS, make, skip)


__all__ = ["CHECKS", "Check", "Make", "check_embedding"]
