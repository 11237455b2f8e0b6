"""The state of an estimator as bytes: NumPy's archive of plain arrays, never a pickle."""

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from daes.distribution.base import State

_PLAIN = "__plain__"


def state_to_bytes(state: Mapping[str, Any]) -> bytes:
    """Arrays and plain values as bytes, each part with its checksum.

    >>> state_from_bytes(state_to_bytes({"count": 3, "sample": np.array([1.0, 2.0])}))
    {'sample': array([1., 2.]), 'count': 3}
    """
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in state.items() if name not in arrays}
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{_PLAIN: text, **arrays})
    return buffer.getvalue()


def state_from_bytes(data: bytes, *, name: str = "state") -> State:
    """The state that `state_to_bytes` encoded; `name` is for errors."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        plain: State = json.loads(arrays.pop(_PLAIN).tobytes())
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(
            f"{name} is truncated, corrupt or not an estimator's state ({len(data)} bytes): {error}"
        ) from error
    return {**arrays, **plain}
