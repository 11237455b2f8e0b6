"""The crosses of DCN v2 without autograd: x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from daes.native.products import product, weight_gradient

_ROWS = 512
"""Rows computed at a time, which stay in the cache. Several threads of torch share operations on all rows."""


def row_slices(rows: int) -> list[slice]:
    """This many rows in slices, at least one, that are computed one after the other."""
    each = _ROWS if torch.get_num_threads() == 1 else max(rows, 1)
    return [slice(first, min(first + each, rows)) for first in range(0, max(rows, 1), each)]


def cross(inputs: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """W_l x_l + b_l and x_{l+1} of every cross, one after the other, of inputs x_0.

    **Shape.** inputs (B, D), weights W_l (D, D) and b_l (D,) in turn → (B, D) each.
    """
    found, crossed = list[Tensor](), inputs
    for place in range(0, len(weights), 2):
        mapped = product(crossed, *weights[place : place + 2])
        crossed = torch.addcmul(crossed, inputs, mapped)
        found += mapped, crossed
    return found


def cross_backward(
    inputs: Tensor, kept: Sequence[Tensor], weights: Sequence[Tensor], up: Tensor, plus: Tensor, sums: list[Any]
) -> tuple[Tensor, Tensor]:
    """Add the gradients of the weights to `sums`, None where there are none yet; two parts of that of the inputs.

    **Shape.** (B, D) each.

    Args:
        inputs, weights: as of `cross`.
        kept: what `cross` gave.
        up: the gradient of x_L.
        plus: a gradient of the inputs that is known already; it is changed, and becomes the second part.
    """
    crossed = [inputs, *kept[1::2]]
    for layer in reversed(range(len(weights) // 2)):
        plus.addcmul_(up, kept[2 * layer])
        down = up * inputs
        add_to(sums, 2 * layer + 1, down.sum(0))
        sums[2 * layer] = weight_gradient(down, crossed[layer], sums[2 * layer])
        up = product(down, weights[2 * layer].t(), up)
    return up, plus


def add_to(sums: list[Any], place: int, more: Tensor) -> None:
    """Add to one of several sums, which is None as long as nothing was added."""
    sums[place] = more if sums[place] is None else sums[place].add_(more)
