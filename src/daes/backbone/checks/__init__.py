"""A check suite for all backbones: import it to check your own backbone.

>>> from daes.backbone import build_backbone
>>> from daes.backbone.checks import CHECKS, check_backbone
>>> check_backbone(lambda *sizes, **plain: build_backbone("fm", *sizes, **plain), skip=["check_onnx", "check_compile"])

Or with a separate test for each check:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_backbone(check):
        CHECKS[check](MyBackbone)
"""

from collections.abc import Iterable

from daes.backbone.checks import behaviour, graphs
from daes.backbone.checks.sample import Check, Make
from daes.checking import run_checks

CHECKS: dict[str, Check] = {
    name: check for module in (behaviour, graphs) for name, check in vars(module).items() if name.startswith("check_")
}
"""Name → check."""


def check_backbone(make: Make, *, skip: Iterable[str] = ()) -> None:
    """Run every check on a backbone; an AssertionError tells which one fails and why.

    The checks need the packages safetensors, onnx, onnxscript and onnxruntime, and take some seconds.

    Args:
        make: the class, or a function with its arguments `(num_fields, dim, *, plain_dim)`. Checks are fast with small
            hidden layers.
        skip: names of `CHECKS` to skip.
    """
    run_checks(CHECKS, make, skip)


__all__ = ["CHECKS", "Check", "Make", "check_backbone"]
