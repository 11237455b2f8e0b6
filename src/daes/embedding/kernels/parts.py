"""Sums of what several programs have computed, in the same order each time."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_WIDTH = 64
_CHUNK = 32


@triton.jit
def _sum_parts(parts, out, count, size, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    place = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([CHUNK, WIDTH], tl.float32)
    for first in range(0, count, CHUNK):
        part = first + tl.arange(0, CHUNK)[:, None]
        wanted = (part < count) & (place < size)[None, :]
        total += tl.load(parts + part.to(tl.int64) * size + place[None, :], mask=wanted, other=0.0)
    tl.store(out + place, tl.sum(total, 0), mask=place < size)


def sum_parts(parts: Tensor) -> Tensor:
    """`parts.sum(0)` of contiguous float32 parts; torch's own takes several times as long for few, small parts."""
    if len(parts) == 1:
        return parts[0]
    out = torch.empty(parts.shape[1:], device=parts.device)
    if out.numel():
        chunk = min(_CHUNK, triton.next_power_of_2(max(len(parts), 1)))
        grid = (triton.cdiv(out.numel(), _WIDTH),)
        _sum_parts[grid](parts, out, len(parts), out.numel(), WIDTH=_WIDTH, CHUNK=chunk)
    return out
