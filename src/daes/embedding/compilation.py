"""Keeping a function out of compiled graphs without loading the compiler."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_T = TypeVar("_T")


def outside_graphs(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """As `torch.compiler.disable`: a compiled model calls the function as it is.

    That decorator loads torch's compiler, for seconds, wherever it is used; this one lets a process that never compiles
    do without.

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
    marked._torchdynamo_disable = True  # what the compiler knows such functions by: it breaks the graph here
    return call
