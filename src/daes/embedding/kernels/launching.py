"""Where kernels are launched."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_T = TypeVar("_T")


def on_its_device(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """The function with its first argument's device as the current one, which is where Triton launches."""

    @wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        first: Any = arguments[0] if arguments else next(iter(options.values()))
        with torch.cuda.device_of(first):
            return function(*arguments, **options)

    return call
