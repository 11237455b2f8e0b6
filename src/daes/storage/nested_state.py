"""A nested state as JSON and blocks of bytes, and back: what a checkpoint can hold, and how exactly.

Dicts (keys: str or int), lists and tuples hold torch tensors, NumPy arrays and scalars, and plain values: str, int of
any size, float, bool, None. Everything comes back with its type, its dtype, its shape and its bits; tensors come back
on the CPU, without gradient history. An OrderedDict comes back as a dict. Anything else is refused with its place.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_DEPTH = 100

_TORCH = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
}
_NUMPY = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
}
_TORCH_TAG = {dtype: tag for tag, dtype in _TORCH.items()}
_NUMPY_TAG = {text: tag for tag, text in _NUMPY.items()}
ITEM_SIZE = {tag: dtype.itemsize for tag, dtype in _TORCH.items()}
"""Bytes an element, for each type of safetensors that is used here."""

_OTHER_DTYPE = re.compile(r"[<>|][biufcmMSU]\d{1,9}(\[\d*[a-zA-Z]{1,2}\])?")
_LARGE = 1 << 63


class StateError(ValueError):
    """A state that cannot be put into a file, or a file that holds no state that can be trusted."""


class Block(NamedTuple):
    """One array of a state: its type in safetensors' words, its shape, its bytes in C order."""

    tag: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


class Flat(NamedTuple):
    """A state taken apart: JSON in which {"torch": NAME} and {"numpy": NAME} stand for the blocks."""

    tree: str
    blocks: dict[str, Block]


def flatten(state: Any, *, copy: bool = False) -> Flat:
    """Take a state apart. With `copy` the blocks share no memory with it, so that it may change afterwards.

    >>> flat = flatten({"weight": torch.zeros(2), "steps": 3})
    >>> flat.tree
    '{"dict":{"weight":{"torch":"weight"},"steps":3}}'
    >>> flat.blocks["weight"].tag, flat.blocks["weight"].shape
    ('F32', (2,))
    """
    blocks: dict[str, Block] = {}
    tree = _Encoder(blocks, copy).encode(state, ())
    return Flat(json.dumps(tree, allow_nan=False, separators=(",", ":")), blocks)


def unflatten(flat: Flat) -> Any:
    """Put a state together again. Its arrays take over the blocks' memory.

    >>> unflatten(flatten({"a": (1, float("inf")), 7: np.float32(2)}))
    {'a': (1, inf), 7: np.float32(2.0)}
    """
    tree = load_json(flat.tree)
    try:
        return _decode(tree, flat.blocks)
    except StateError:
        raise
    except RecursionError:
        raise StateError("its tree is nested too deeply") from None
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        # A shape may be absurd without taking a byte: (0, 10**30).
        raise StateError(f"it holds an array that cannot be made: {str(error).partition(chr(10))[0]}") from error


def load_json(text: str | bytes) -> Any:
    """Parse strict JSON; an error is a `StateError`, however deep or long or broken the text."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise StateError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise StateError(f"its JSON is broken: {error}") from None


class _Encoder:
    def __init__(self, blocks: dict[str, Block], copy: bool) -> None:
        self._blocks = blocks
        self._copy = copy

    def encode(self, value: Any, path: tuple[Any, ...]) -> Any:
        if len(path) > MAX_DEPTH:
            raise StateError(f"state must be nested at most {MAX_DEPTH} deep; {_place(path[:4])}… goes on")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -_LARGE <= value < _LARGE else {"int": _number(value)}
        if kind is float:
            return value if isfinite(value) else {"float": str(value)}
        if kind in (dict, OrderedDict):
            return self._encode_dict(value, path)
        if kind is list:
            return [self.encode(item, (*path, index)) for index, item in enumerate(value)]
        if kind is tuple:
            return {"tuple": [self.encode(item, (*path, index)) for index, item in enumerate(value)]}
        if kind in (Tensor, torch.nn.Parameter):
            return {"torch": self._add(_tensor_block(value, path), path, owned=value.device.type != "cpu")}
        if kind is np.ndarray or isinstance(value, np.generic):
            return self._encode_array(value, path)
        raise StateError(f"state cannot hold a {kind.__module__}.{kind.__qualname__}; {_place(path)} is one")

    def _encode_dict(self, value: Mapping[Any, Any], path: tuple[Any, ...]) -> Any:
        for key in value:
            if type(key) not in (str, int):
                raise StateError(f"keys must be str or int; {_place(path)} has the key {key!r}")
        pairs = [(key, self.encode(item, (*path, key))) for key, item in value.items()]
        if all(type(key) is str for key in value):
            return {"dict": dict(pairs)}
        return {"items": [[self.encode(key, path), item] for key, item in pairs]}

    def _encode_array(self, value: Any, path: tuple[Any, ...]) -> Any:
        word = "numpy" if type(value) is np.ndarray else "scalar"
        array = np.asarray(value, order="C")
        text = array.dtype.str
        if tag := _NUMPY_TAG.get(text):
            return {word: self._add(Block(tag, array.shape, _bytes(array)), path)}
        if not _OTHER_DTYPE.fullmatch(text) or np.dtype(text) != array.dtype:
            raise StateError(f"state cannot hold arrays of dtype {array.dtype}; {_place(path)} is one")
        name = self._add(Block("U8", (array.nbytes,), _bytes(array)), path)
        return {word: name, "dtype": text, "shape": list(array.shape)}

    def _add(self, block: Block, path: tuple[Any, ...], owned: bool = False) -> str:
        if self._copy and not owned:
            block = block._replace(data=block.data.copy())
        plain = (
            ".".join(key if type(key) is str else _number(key) for key in path)
            .encode("utf-8", "backslashreplace")
            .decode()
            or "state"
        )
        name, count = plain, 1
        while name in self._blocks or name == "__metadata__":
            count += 1
            name = f"{plain}#{count}"
        self._blocks[name] = block
        return name


def _tensor_block(tensor: Tensor, path: tuple[Any, ...]) -> Block:
    tag = _TORCH_TAG.get(tensor.dtype)
    if tag is None or tensor.layout != torch.strided or tensor.is_meta:
        what = f"{tensor.dtype} tensor, {tensor.layout}, on {tensor.device}"
        raise StateError(f"state cannot hold such a tensor; {_place(path)} is a {what}")
    flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
    return Block(tag, tuple(tensor.shape), flat.view(torch.uint8).numpy())


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8) if array.nbytes else np.empty(0, dtype=np.uint8)


def _decode(node: Any, blocks: Mapping[str, Block]) -> Any:
    if isinstance(node, list):
        return [_decode(item, blocks) for item in node]
    if not isinstance(node, dict):
        return node
    match node:
        case {"dict": dict(content), **rest} if not rest:
            return {key: _decode(item, blocks) for key, item in content.items()}
        case {"items": list(pairs), **rest} if not rest:
            return dict(_decode_pairs(pairs, blocks))
        case {"tuple": list(content), **rest} if not rest:
            return tuple(_decode(item, blocks) for item in content)
        case {"int": str(digits), **rest} if not rest and re.fullmatch("-?0x[0-9a-f]+", digits):
            return int(digits, 16)
        case {"float": "nan" | "inf" | "-inf" as name, **rest} if not rest:
            return float(name)
        case {"torch": str(name), **rest} if not rest:
            return _tensor(_block(name, blocks))
        case {"numpy": str(name), **rest}:
            return _array(_block(name, blocks), rest)
        case {"scalar": str(name), **rest}:
            return _array(_block(name, blocks), rest)[()]
    raise StateError(f"its tree has an entry this version does not know: {str(node)[:80]}")


def _decode_pairs(pairs: list[Any], blocks: Mapping[str, Block]) -> Iterator[tuple[str | int, Any]]:
    for pair in pairs:
        match pair:
            case [key, item]:
                decoded = _decode(key, blocks)
                if type(decoded) in (str, int):
                    yield decoded, _decode(item, blocks)
                    continue
        raise StateError(f"its tree has an entry this version does not know: {str(pair)[:80]}")


def _block(name: str, blocks: Mapping[str, Block]) -> Block:
    if name not in blocks:
        raise StateError(f"its tree speaks of an array {name!r} that is not there")
    return blocks[name]


def _tensor(block: Block) -> Tensor:
    dtype = _TORCH[block.tag]
    if not block.data.size:
        return torch.empty(block.shape, dtype=dtype)
    return torch.from_numpy(block.data).view(dtype).reshape(block.shape)


def _array(block: Block, other: Mapping[str, Any]) -> NDArray[Any]:
    match other:
        case {"dtype": str(text), "shape": list(shape)} if len(other) == 2 and _OTHER_DTYPE.fullmatch(text):
            dtype = _dtype(text)
        case {} if not other and block.tag in _NUMPY:
            dtype, shape = np.dtype(_NUMPY[block.tag]), list(block.shape)
        case _:
            raise StateError(f"its tree has an array of a kind this version does not know: {str(other)[:80]}")
    if not all(type(side) is int and side >= 0 for side in shape) or prod(shape) * dtype.itemsize != block.data.size:
        raise StateError(f"its tree has an array of shape {shape} and dtype {dtype} in {block.data.size} bytes")
    if not block.data.size:
        return np.empty(shape, dtype=dtype)
    return block.data.view(dtype).reshape(shape)


def _dtype(text: str) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError:
        raise StateError(f"its tree has an array of a dtype that NumPy does not know: {text}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _place(path: tuple[Any, ...]) -> str:
    return "state" + "".join(f"[{key!r}]" if type(key) is str else f"[{_number(key)}]" for key in path)


def _number(key: int) -> str:
    # Python refuses to write very long numbers in decimal.
    return str(key) if -_LARGE <= key < _LARGE else hex(key)
