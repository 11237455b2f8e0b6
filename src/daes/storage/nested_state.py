"""Nested states as JSON and plain arrays, and back: what a checkpoint can contain.

Dicts (keys: str or int), lists and tuples contain torch tensors, NumPy arrays and scalars (bool, integers, floats), and
plain values: str, int of any size, float, bool, None. Decoding restores types, dtypes, shapes and all bits; tensors are
restored on the CPU, without gradient history, an OrderedDict as a dict, NumPy's str as a str, and `Pieces` as a tensor.
Anything else is an error that names its path in the state.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_DEPTH = 100

# The name of a type in safetensors, in torch, and in NumPy if it has the type.
_TYPES: tuple[tuple[str, torch.dtype, str | None], ...] = (
    ("BOOL", torch.bool, "|b1"),
    ("U8", torch.uint8, "|u1"),
    ("I8", torch.int8, "|i1"),
    ("U16", torch.uint16, "<u2"),
    ("I16", torch.int16, "<i2"),
    ("F16", torch.float16, "<f2"),
    ("BF16", torch.bfloat16, None),
    ("U32", torch.uint32, "<u4"),
    ("I32", torch.int32, "<i4"),
    ("F32", torch.float32, "<f4"),
    ("U64", torch.uint64, "<u8"),
    ("I64", torch.int64, "<i8"),
    ("F64", torch.float64, "<f8"),
)
_TORCH = {tag: dtype for tag, dtype, _ in _TYPES}
_NUMPY = {tag: text for tag, _, text in _TYPES if text}
_TORCH_TAG = {dtype: tag for tag, dtype in _TORCH.items()}
_NUMPY_TAG = {text: tag for tag, text in _NUMPY.items()}
ITEM_SIZE = {tag: dtype.itemsize for tag, dtype in _TORCH.items()}
"""Bytes per element of each type of safetensors used here."""

_LARGE = 1 << 63


class StateError(ValueError):
    """A state that cannot be written to a file, or a file without a valid state."""


class Pieces(NamedTuple):
    """A tensor that no process has as a whole: its type, its shape, and a function that iterates over its pieces."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Iterator[Tensor]]


class StoredArray(NamedTuple):
    """One array of a state: its type in safetensors, its shape, its bytes in C order.

    For `Pieces`, `data` is empty and `pieces` gives the bytes.
    """

    tag: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    pieces: Callable[[], Iterator[Tensor]] | None = None

    @property
    def size(self) -> int:
        return prod(self.shape) * ITEM_SIZE[self.tag]

    def parts(self) -> Iterator[memoryview]:
        """The bytes, in one or more parts."""
        if self.pieces is None:
            yield self.data.data
        else:
            for piece in self.pieces():
                yield stored_tensor(piece).data.data


class EncodedState(NamedTuple):
    """An encoded state: `structure` is JSON in which {"torch": NAME} and {"numpy": NAME} stand for arrays."""

    structure: str
    arrays: dict[str, StoredArray]


def encode_state(state: Any, *, copy: bool = False) -> EncodedState:
    """Separate the arrays of a state from its structure. With `copy` they share no memory with the state.

    >>> encoded = encode_state({"weight": torch.zeros(2), "steps": 3})
    >>> encoded.structure
    '{"dict":{"weight":{"torch":"weight"},"steps":3}}'
    >>> encoded.arrays["weight"].tag, encoded.arrays["weight"].shape
    ('F32', (2,))
    """
    arrays: dict[str, StoredArray] = {}
    structure = _Encoder(arrays, copy).encode(state, ())
    return EncodedState(json.dumps(structure, allow_nan=False, separators=(",", ":")), arrays)


def decode_state(encoded: EncodedState) -> Any:
    """The state that was encoded. Its arrays share the memory of the encoded ones.

    >>> decode_state(encode_state({"a": (1, float("inf")), 7: np.float32(2)}))
    {'a': (1, inf), 7: np.float32(2.0)}
    """
    structure = load_json(encoded.structure)
    try:
        return _decode(structure, encoded.arrays)
    except StateError:
        raise
    except RecursionError:
        raise StateError("its structure is nested too deeply") from None
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        # A shape without bytes can still be impossible: (0, 10**30).
        raise StateError(f"it holds an array that cannot be made: {str(error).partition(chr(10))[0]}") from error


def load_json(text: str | bytes) -> Any:
    """Parse strict JSON; any error is a `StateError`."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise StateError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise StateError(f"its JSON is broken: {error}") from None


class _Encoder:
    def __init__(self, arrays: dict[str, StoredArray], copy: bool) -> None:
        self._arrays = arrays
        self._copy = copy

    def encode(self, value: Any, path: tuple[Any, ...]) -> Any:
        if len(path) > MAX_DEPTH:
            raise StateError(f"state must be nested at most {MAX_DEPTH} deep; {_path_text(path[:4])}… is deeper")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is np.str_:
            return str(value)
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
            return {"torch": self._add(stored_tensor(value, path), path, owned=value.device.type != "cpu")}
        if kind is Pieces:
            stored = StoredArray(_TORCH_TAG[value.dtype], value.shape, np.empty(0, np.uint8), value.read)
            return {"torch": self._add(stored, path, owned=True)}
        if kind is np.ndarray or isinstance(value, np.generic):
            return self._encode_array(value, path)
        raise StateError(f"state cannot hold a {kind.__module__}.{kind.__qualname__}; {_path_text(path)} is one")

    def _encode_dict(self, value: Mapping[Any, Any], path: tuple[Any, ...]) -> Any:
        for key in value:
            if type(key) not in (str, int):
                raise StateError(f"keys must be str or int; {_path_text(path)} has the key {key!r}")
        pairs = [(key, self.encode(item, (*path, key))) for key, item in value.items()]
        if all(type(key) is str for key in value):
            return {"dict": dict(pairs)}
        return {"items": [[self.encode(key, path), item] for key, item in pairs]}

    def _encode_array(self, value: Any, path: tuple[Any, ...]) -> Any:
        word = "numpy" if type(value) is np.ndarray else "scalar"
        array = np.asarray(value, order="C")
        tag = _NUMPY_TAG.get(array.dtype.str)
        if tag is None:
            raise StateError(f"state cannot hold arrays of dtype {array.dtype}; {_path_text(path)} is one")
        return {word: self._add(StoredArray(tag, array.shape, array.reshape(-1).view(np.uint8)), path)}

    def _add(self, stored: StoredArray, path: tuple[Any, ...], owned: bool = False) -> str:
        if self._copy and not owned:
            stored = stored._replace(data=stored.data.copy())
        plain = (
            ".".join(key if type(key) is str else _number(key) for key in path)
            .encode("utf-8", "backslashreplace")
            .decode()
            or "state"
        )
        name, count = plain, 1
        while name in self._arrays or name == "__metadata__":
            count += 1
            name = f"{plain}#{count}"
        self._arrays[name] = stored
        return name


def stored_tensor(tensor: Tensor, path: tuple[Any, ...] = ()) -> StoredArray:
    """A tensor as it is stored, without a copy if it is on the CPU; `path` is its path in the state, for errors."""
    tag = _TORCH_TAG.get(tensor.dtype)
    if tag is None or tensor.layout != torch.strided or tensor.is_meta:
        what = f"{tensor.dtype} tensor, {tensor.layout}, on {tensor.device}"
        raise StateError(f"state cannot hold such a tensor; {_path_text(path)} is a {what}")
    return StoredArray(tag, tuple(tensor.shape), tensor_bytes(tensor.cpu().resolve_neg().contiguous()))


def empty_tensor(tag: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor on the CPU for an array of this type in safetensors and of this shape."""
    return torch.empty(shape, dtype=_TORCH[tag], device="cpu")


def fits(tensor: Tensor, tag: str, shape: tuple[int, ...]) -> bool:
    """Whether the bytes of such an array can be read into the memory of a tensor."""
    same = tensor.dtype == _TORCH[tag] and tensor.shape == shape
    return same and tensor.device.type == "cpu" and tensor.is_contiguous()


def tensor_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """The memory of a contiguous tensor on the CPU, as bytes."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _decode(node: Any, arrays: Mapping[str, StoredArray]) -> Any:
    if isinstance(node, list):
        return [_decode(item, arrays) for item in node]
    if not isinstance(node, dict):
        return node
    match node:
        case {"dict": dict(content), **rest} if not rest:
            return {key: _decode(item, arrays) for key, item in content.items()}
        case {"items": list(pairs), **rest} if not rest:
            return dict(_decode_pairs(pairs, arrays))
        case {"tuple": list(content), **rest} if not rest:
            return tuple(_decode(item, arrays) for item in content)
        case {"int": str(digits), **rest} if not rest and re.fullmatch("-?0x[0-9a-f]+", digits):
            return int(digits, 16)
        case {"float": "nan" | "inf" | "-inf" as name, **rest} if not rest:
            return float(name)
        case {"torch": str(name), **rest} if not rest:
            return _tensor(_find(name, arrays))
        case {"numpy": str(name), **rest} if not rest:
            return _array(_find(name, arrays))
        case {"scalar": str(name), **rest} if not rest:
            return _array(_find(name, arrays))[()]
    raise StateError(f"its structure has an entry this version does not know: {str(node)[:80]}")


def _decode_pairs(pairs: list[Any], arrays: Mapping[str, StoredArray]) -> Iterator[tuple[str | int, Any]]:
    for pair in pairs:
        match pair:
            case [key, item]:
                decoded = _decode(key, arrays)
                if type(decoded) in (str, int):
                    yield decoded, _decode(item, arrays)
                    continue
        raise StateError(f"its structure has an entry this version does not know: {str(pair)[:80]}")


def _find(name: str, arrays: Mapping[str, StoredArray]) -> StoredArray:
    if name not in arrays:
        raise StateError(f"its structure names an array {name!r} that is not there")
    return arrays[name]


def _tensor(stored: StoredArray) -> Tensor:
    if not stored.data.size:
        return empty_tensor(stored.tag, stored.shape)
    return torch.from_numpy(stored.data).view(_TORCH[stored.tag]).reshape(stored.shape)


def _array(stored: StoredArray) -> NDArray[Any]:
    if stored.tag not in _NUMPY:
        raise StateError(f"its structure has a NumPy array of a type that NumPy does not know: {stored.tag}")
    return stored.data.view(_NUMPY[stored.tag]).reshape(stored.shape)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _path_text(path: tuple[Any, ...]) -> str:
    return "state" + "".join(f"[{key!r}]" if type(key) is str else f"[{_number(key)}]" for key in path)


def _number(key: int) -> str:
    # Python refuses to convert very long numbers to decimal.
    return str(key) if -_LARGE <= key < _LARGE else hex(key)
