"""A model as a folder: `config.json` and `model.safetensors`, nothing that runs code when read.

`config.json` names the weights it belongs to by their SHA-256. To replace it is therefore the one instant at which a
new model takes the place of an old one: the new weights lie beside the old ones before it, under a name that ends in
their digest, and get the name `model.safetensors` after it. A reader takes whichever of the two has the right digest.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from daes.extras import require
from daes.storage.durable import clear_leftovers, write_bytes, write_text
from daes.stream.schema import Schema

FORMAT = "daes.model"
VERSION = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_WAITING = re.compile(rf"{re.escape(WEIGHTS)}\.[0-9a-f]{{64}}")


def save_model(model: nn.Module, schema: Schema, config: Mapping[str, Any], folder: Path) -> None:
    """Write a model so that the folder holds either the old or the new one, whatever happens in between."""
    safetensors = require("safetensors.torch")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    weights = safetensors.save(tensors)
    digest = hashlib.sha256(weights).hexdigest()
    stored = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": digest,
        "schema": json.loads(schema.to_json()),
        "model": config,
    }
    try:
        text = json.dumps(stored, indent=2, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(f"only a model of plain options can be saved, got {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"a model is saved as a folder; {error.filename} is a file") from error
    new = folder / f"{WEIGHTS}.{digest}"
    write_bytes(new, weights)
    try:
        write_text(folder / CONFIG, text)
    except BaseException:
        if not _is_named(digest, folder):
            new.unlink(missing_ok=True)
        raise
    new.replace(folder / WEIGHTS)
    for path in folder.iterdir():
        if _WAITING.fullmatch(path.name):
            path.unlink(missing_ok=True)
    clear_leftovers(folder, lambda name: name == CONFIG or _WAITING.fullmatch(name))


def load_model(folder: Path) -> tuple[Schema, dict[str, Any], dict[str, Tensor]]:
    """Schema, arguments and tensors of a saved model, or an error that says what is wrong with the folder."""
    safetensors = require("safetensors.torch")
    config, weights = _read_both(folder)
    try:
        schema = Schema.from_json(json.dumps(config["schema"]))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG} has no sound schema: {error}") from error
    try:
        state = safetensors.load(weights)
    except Exception as error:  # safetensors has an error class of its own, which is an Exception and no more
        raise ValueError(f"{folder / WEIGHTS} is not a safetensors file: {error}") from error
    return schema, config["model"], state


def load_state(model: nn.Module, state: Mapping[str, Tensor], folder: Path) -> None:
    """Load tensors strictly; a mismatch names the folder."""
    try:
        model.load_state_dict(state)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG} beside it: {error}") from error


def refuse_other_schema(given: Schema, saved: Schema) -> None:
    """A ValueError that names the columns in which two schemas differ; the label may be left out."""
    for part in ("numerical", "categorical"):
        mine, theirs = getattr(given, part), getattr(saved, part)
        if mine != theirs:
            lacking = [name for name in theirs if name not in mine]
            extra = [name for name in mine if name not in theirs]
            said = [f"lack {', '.join(lacking)}"] * bool(lacking) + [f"add {', '.join(extra)}"] * bool(extra)
            raise ValueError(
                f"schema must be the one the model was saved with, got its {part} columns "
                f"{' and '.join(said) or 'come in another order'}"
            )


def _read_both(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The configuration and the weights that belong to it, though a writer may replace both meanwhile."""
    path = folder / CONFIG
    while True:
        try:
            before, text = _identity(path), path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"no saved model in {folder}: it has no {CONFIG}") from None
        config = _parse(text, path)
        weights = _read_weights(folder, config["sha256"])
        if weights is not None:
            return config, weights
        # The same text may have come back (one model, another, the first again): only the same file proves that nobody
        # has written meanwhile.
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


def _read_weights(folder: Path, digest: str) -> bytes | None:
    # Twice by its final name, which a writer may give it between the first look and the second.
    for name in (WEIGHTS, f"{WEIGHTS}.{digest}", WEIGHTS):
        try:
            weights = (folder / name).read_bytes()
        except FileNotFoundError:
            continue
        if hashlib.sha256(weights).hexdigest() == digest:
            return weights
    return None


def _is_named(digest: str, folder: Path) -> bool:
    """Whether the weights of that digest are the folder's model, since this writer or one before it got so far."""
    try:
        return digest.encode() in (folder / CONFIG).read_bytes()
    except FileNotFoundError:
        return False


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not whole, valid JSON: {error}") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise ValueError(f'{path} must have "format": "{FORMAT}"')
    if stored.get("version") != VERSION:
        raise ValueError(f"{path} has version {stored.get('version')!r}, this release reads {VERSION}")
    for key in ("schema", "model"):
        if not isinstance(stored.get(key), dict):
            raise ValueError(f"{path} must have an object called {key!r}, got {stored.get(key)!r}")
    if not isinstance(stored.get("sha256"), str) or not _DIGEST.fullmatch(stored["sha256"]):
        raise ValueError(f"{path} must have 64 hexadecimal digits as 'sha256', got {stored.get('sha256')!r}")
    return stored
