"""Checksums of rows and of a model's tensors, to check that several processes read and learn the same."""

from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from daes.embedding import DividedEmbedding
from daes.embedding.processes import ProcessesDisagreeError
from daes.model import CTRModel
from daes.stream.batch import Batch

_AT_ONCE = 1 << 14
_ROWS_COMPARED = 64


@torch.no_grad()
def model_checksum(model: CTRModel, turn: int = 0, shared: Collection[int] = ()) -> dict[str, int]:
    """A checksum of every parameter and buffer by name; equal bits have equal checksums.

    Of a larger tensor only 16,384 entries are used, the next ones at each `turn`, so that the cost does not grow with
    the tables. Left out are tensors at the addresses `shared`, which all processes have in common; a divided table, of
    which each process has its own part; the number of batches that BatchNorm has seen, since a process may have had no
    rows at times; and fading evidence on a device, where the order of sums is not fixed.
    """
    divided = isinstance(model.categorical, DividedEmbedding)
    fading = model.evidence.options.half_life is not None and model.device.type != "cpu"
    return {
        name: _checksum(tensor, turn)
        for name, tensor in model.state_dict().items()
        if tensor.data_ptr() not in shared
        and not name.endswith("num_batches_tracked")
        and not (fading and name.startswith("evidence."))
        and not (divided and name == "categorical.weight")
    }


def rows_checksum(rows: Batch) -> int:
    """A checksum of some rows, evenly spaced up to the last one: that of all would take as long as learning."""
    some = rows[np.arange(len(rows) - 1, -1, -max(1, len(rows) // _ROWS_COMPARED))]
    checksum = 0
    for array in (some.numerical, some.categorical, some.label, some.weight):
        if array is not None:
            checksum = crc32(np.ascontiguousarray(array).data, checksum)
    return checksum


def check_equal(checksums: Sequence[Mapping[str, int]], row: int) -> None:
    """Raise unless the models of all processes have the same checksums at a row of the stream."""
    for number, checksum in enumerate(checksums):
        differing = [name for name, value in checksums[0].items() if checksum[name] != value]
        if differing:
            raise ProcessesDisagreeError(
                f"processes 0 and {number} have different models before row {row:,} "
                f"({', '.join(differing[:3])}): they need the same kind of processor and device and the same torch"
            )


def _checksum(tensor: Tensor, turn: int) -> int:
    flat = tensor.detach().contiguous()
    if flat.numel() > _AT_ONCE:
        pieces = -(-flat.numel() // _AT_ONCE)
        flat = flat.view(-1)[turn % pieces * _AT_ONCE :][:_AT_ONCE]
    if flat.dtype == torch.bfloat16:  # which NumPy does not know
        flat = flat.view(torch.int16)
    return crc32(flat.cpu().numpy().data)
