"""A nested state in one file: safetensors for its arrays, JSON for the rest, a SHA-256 over all of it. Never pickle.

The file is an ordinary safetensors file, which any reader of that format opens. Its `__metadata__` holds

    sha256    of the whole file, these 64 digits taken as zeros; always at the same place, right at the beginning
    format    "daes-state"
    version   "1"
    tree      the state as JSON, in which {"torch": NAME} and {"numpy": NAME} stand for the arrays

No name in a file is ever used as a path, and nothing in it can name code to run.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import isfinite, prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FORMAT = "daes-state"
VERSION = "1"
MAX_HEADER = 100_000_000
"""Bytes of JSON a file may hold; other readers of safetensors draw the same line."""
MAX_DEPTH = 100

_START = b'{"__metadata__":{"sha256":"'
_DIGEST_AT = 8 + len(_START)
_NO_DIGEST = b"0" * 64
_CHUNK = 1 << 20

_NUMPY_TAG = {
    "|b1": "BOOL",
    "|u1": "U8",
    "|i1": "I8",
    "<u2": "U16",
    "<i2": "I16",
    "<f2": "F16",
    "<u4": "U32",
    "<i4": "I32",
    "<f4": "F32",
    "<u8": "U64",
    "<i8": "I64",
    "<f8": "F64",
}
_TORCH_TAG = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
}
_TAG_NUMPY = {tag: np.dtype(name) for name, tag in _NUMPY_TAG.items()}
_TAG_TORCH = {tag: dtype for dtype, tag in _TORCH_TAG.items()}
_ITEMSIZE = {tag: dtype.itemsize for tag, dtype in _TAG_TORCH.items()}


class StateFileError(ValueError):
    """A file does not hold a state that can be trusted, or a state cannot be put into a file."""
