"""Excludes a function from compiled graphs without loading the compiler."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_T = TypeVar("_T")


def outside_graphs(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """As `torch.compiler.disable`: a compiled model calls the function as it is.

    That decorator loads torch's compiler, which takes seconds; this one loads it only in a process that compiles.

    >>> @outside_graphs
    ... def double(number):
    ...     return 2 * number
    >>> double(4)
    8
    """
    disabled: list[Callable[_P, _T]] = []

    @wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return disabled[0](*arguments, **options)

    marked: Any = call
    marked._torchdynamo_disable = True  # tells the compiler to break the graph here
    return call
