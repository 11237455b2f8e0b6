"""A model as a folder: `config.json` and `model.safetensors`; reading them never runs code.

`config.json` contains the SHA-256 of the weights, so the model is replaced in one step, when `config.json` is: before
that, the new weights are written beside the old ones under a name that ends in their digest; after that, they are
renamed to `model.safetensors`. A reader uses the file with the right digest. `config.json` also contains the SHA-256 of
its own content, independent of its layout, so that changes to it are detected.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from torch import nn

from daes.storage.durable import remove_temporary_files, replacing, write_text
from daes.storage.nested_state import ITEM_SIZE, StateError, empty_tensor, fits, load_json, stored_tensor, tensor_bytes
from daes.storage.run_folder import parse_json
from daes.storage.state_file import array_layout, read_bytes, safetensors_header
from daes.stream.schema import Schema

FORMAT = "daes.model"
VERSION = 4
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_WAITING = re.compile(rf"{re.escape(WEIGHTS)}\.[0-9a-f]{{64}}")


def save_model(model: nn.Module, schema: Schema, config: Mapping[str, Any], folder: Path) -> None:
    """Write a model so that the folder has either the old or the new one, even if the process is killed."""
    arrays = [(name, stored_tensor(tensor)) for name, tensor in model.state_dict().items()]
    arrays.sort(key=lambda item: (-ITEM_SIZE[item[1].tag], item[0]))  # aligns all arrays, as safetensors does
    parts: list[bytes | memoryview] = [safetensors_header(arrays)]
    parts += [part for _, stored in arrays for part in stored.parts()]  # the tensors' own memory: no copies
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    stored = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": digest.hexdigest(),
        "schema": json.loads(schema.to_json()),
        "model": config,
    }
    try:
        text = json.dumps(sealed(stored), indent=2, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(f"only a model of plain options can be saved, got {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"a model is saved as a folder; {error.filename} is a file") from error
    new = folder / f"{WEIGHTS}.{digest.hexdigest()}"
    with replacing(new) as file:
        for part in parts:
            file.write(part)
    try:
        write_text(folder / CONFIG, text)
    except BaseException:
        if not _is_named(digest.hexdigest(), folder):
            new.unlink(missing_ok=True)
        raise
    new.replace(folder / WEIGHTS)
    for path in folder.iterdir():
        if _WAITING.fullmatch(path.name):
            path.unlink(missing_ok=True)
    remove_temporary_files(folder, lambda name: name == CONFIG or _WAITING.fullmatch(name))


def sealed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the SHA-256 of its other entries in canonical JSON."""
    rest = {key: value for key, value in stored.items() if key != "config_sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "config_sha256": hashlib.sha256(text.encode()).hexdigest()}


@contextmanager
def open_model(folder: Path) -> Iterator[tuple[Schema, dict[str, Any], BufferedReader]]:
    """Schema, arguments and the file of the weights of a saved model, the content of which has been checked."""
    config, weights = _open_both(folder)
    with weights:
        try:
            schema = Schema.from_json(json.dumps(config["schema"]))
        except ValueError as error:
            raise ValueError(f"{folder / CONFIG} has no valid schema: {error}") from error
        yield schema, config["model"], weights


def load_weights(model: nn.Module, weights: BufferedReader, folder: Path) -> None:
    """Read the tensors of a model strictly; an error names the file.

    A tensor is read into the memory of the model's own where it fits: a second copy of a large table is never needed.
    """
    own, state = model.state_dict(), {}
    try:
        for name, tag, shape in _layout(weights):
            tensor = own.get(name)
            if tensor is None or not fits(tensor, tag, shape):
                tensor = empty_tensor(tag, shape)
            read_bytes(weights, tensor_bytes(tensor))
            state[name] = tensor
    except StateError as error:
        raise ValueError(f"{folder / WEIGHTS} is not a safetensors file: {error}") from error
    try:
        model.load_state_dict(state)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG} beside it: {error}") from error


def _layout(file: BufferedReader) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, type and shape of each tensor of a safetensors file, the header of which is read."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise StateError(f"its header has {length} bytes, the file {size}")
    header = load_json(file.read(length))
    if not isinstance(header, dict):
        raise StateError("its header is not a JSON object")
    return array_layout(header, size - 8 - length)


def refuse_other_schema(given: Schema, saved: Schema) -> None:
    """Raise a ValueError that names the columns in which two schemas differ; the label is not compared."""
    for part in ("numerical", "categorical"):
        mine, theirs = getattr(given, part), getattr(saved, part)
        if mine != theirs:
            lacking = [name for name in theirs if name not in mine]
            extra = [name for name in mine if name not in theirs]
            said = [f"lack {', '.join(lacking)}"] * bool(lacking) + [f"add {', '.join(extra)}"] * bool(extra)
            raise ValueError(
                f"schema must be the one the model was saved with; its {part} columns "
                f"{' and '.join(said) or 'come in another order'}"
            )


def _open_both(folder: Path) -> tuple[dict[str, Any], BufferedReader]:
    """The configuration and the file of its weights, even if a writer replaces both at the same time."""
    path = folder / CONFIG
    while True:
        try:
            before, text = _identity(path), path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"no saved model in {folder}: it has no {CONFIG}") from None
        config = _parse(text, path)
        weights = _open_weights(folder, config["sha256"])
        if weights is not None:
            return config, weights
        # The text alone does not show that nobody wrote in between: it may have been replaced and written again.
        if _identity(path) == before:
            break
    if not (folder / WEIGHTS).exists():
        raise FileNotFoundError(f"no saved model in {folder}: it has no {WEIGHTS}")
    raise ValueError(
        f"{folder / WEIGHTS} is truncated, damaged or not the file that {CONFIG} was saved with: its SHA-256 differs"
    )


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def _open_weights(folder: Path, digest: str) -> BufferedReader | None:
    # The final name twice, because a writer may rename the file between the first two attempts.
    for name in (WEIGHTS, f"{WEIGHTS}.{digest}", WEIGHTS):
        try:
            file = (folder / name).open("rb")
        except FileNotFoundError:
            continue
        if hashlib.file_digest(file, "sha256").hexdigest() == digest:
            file.seek(0)
            return file
        file.close()
    return None


def _is_named(digest: str, folder: Path) -> bool:
    """Whether the folder's configuration already refers to the weights with this digest."""
    try:
        return digest.encode() in (folder / CONFIG).read_bytes()
    except FileNotFoundError:
        return False


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    stored = parse_json(text, path)
    if stored.get("format") != FORMAT:
        raise ValueError(f'{path} must have "format": "{FORMAT}"')
    if stored.get("version") != VERSION:
        raise ValueError(f"{path} has version {stored.get('version')!r}, this release reads {VERSION}")
    if sealed(stored)["config_sha256"] != stored.get("config_sha256"):
        raise ValueError(f"{path} was changed after the model was saved: its SHA-256 differs")
    for key in ("schema", "model"):
        if not isinstance(stored.get(key), dict):
            raise ValueError(f"{path} must have an object called {key!r}, got {stored.get(key)!r}")
    if not isinstance(stored.get("sha256"), str) or not _DIGEST.fullmatch(stored["sha256"]):
        raise ValueError(f"{path} must have 64 hexadecimal digits as 'sha256', got {stored.get('sha256')!r}")
    return stored
