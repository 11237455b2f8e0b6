"""A model as a folder: `config.json` and `model.safetensors`, nothing that runs code when read.

`config.json` names the weights it belongs to by their SHA-256. To replace it is therefore the one instant at which a
new model takes the place of an old one: the new weights lie beside the old ones before it, under a name that ends in
their digest, and get the name `model.safetensors` after it. A reader takes whichever of the two has the right digest.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from daes.extras import require
from daes.stream.schema import Schema

FORMAT = "daes.model"
VERSION = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_PARTIAL = ".partial"


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
        raise ValueError(f"only a model of plain options can be saved, however: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"a model is saved as a folder, however: {error.filename} is a file") from error
    new = folder / f"{WEIGHTS}.{digest}"
    _write(new, weights)
    _write(folder / CONFIG, text.encode())
    new.replace(folder / WEIGHTS)
    for left in folder.glob(f"{WEIGHTS}.*"):  # of a writer that was stopped
        left.unlink(missing_ok=True)


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
            said = [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"adds {', '.join(extra)}"] * bool(extra)
            raise ValueError(
                f"schema must be the one the model was saved with, however: its {part} columns "
                f"{' and '.join(said) or 'come in another order'}"
            )


def _read_both(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The configuration and the weights that belong to it, though a writer may replace both meanwhile."""
    path = folder / CONFIG
    while True:
        try:
            text = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"no saved model in {folder}: it has no {CONFIG}") from None
        config = _parse(text, path)
        # A writer may give the new weights their final name after the first look and before the second.
        found = [_read(folder / name) for name in (WEIGHTS, f"{WEIGHTS}.{config['sha256']}", WEIGHTS)]
        for weights in found:
            if weights is not None and hashlib.sha256(weights).hexdigest() == config["sha256"]:
                return config, weights
        if path.read_bytes() == text:
            break
    if found == [None] * 3:
        raise FileNotFoundError(f"no saved model in {folder}: it has no {WEIGHTS}")
    raise ValueError(
        f"{folder / WEIGHTS} is truncated, damaged or not the file that {CONFIG} was saved with: its SHA-256 differs"
    )


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not whole, valid JSON: {error}") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise ValueError(f'{path} must have "format": "{FORMAT}"')
    if stored.get("version") != VERSION:
        raise ValueError(f"{path} has version {stored.get('version')!r}, this release reads {VERSION}")
    for key, kind in {"sha256": str, "schema": dict, "model": dict}.items():
        if not isinstance(stored.get(key), kind):
            raise ValueError(f"{path} must have {key!r} as {'a text' if kind is str else 'an object'}")
    return stored


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    """Write a file that has all its bytes, durably, once it has its name."""
    temporary = path.with_name(path.name + _PARTIAL)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
