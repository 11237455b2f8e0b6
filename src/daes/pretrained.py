"""A model as a folder: `config.json` and `model.safetensors`, nothing that runs code when read."""

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


def save_model(model: nn.Module, schema: Schema, config: Mapping[str, Any], folder: Path) -> None:
    """Write a model so that the folder holds either the old or the new one, whatever happens in between."""
    safetensors = require("safetensors.torch")
    try:
        text = json.dumps(
            {"format": FORMAT, "version": VERSION, "schema": json.loads(schema.to_json()), "model": config}, indent=2
        )
    except TypeError as error:
        raise ValueError(f"only a model of plain options can be saved, however: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    _replace(folder / WEIGHTS, safetensors.save(tensors))
    _replace(folder / CONFIG, text.encode())


def load_model(folder: Path) -> tuple[Schema, dict[str, Any], dict[str, Tensor]]:
    """Schema, arguments and tensors of a saved model, or a ValueError that says what is wrong with the folder."""
    safetensors = require("safetensors.torch")
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"no saved model in {folder}: it has no {CONFIG}")
    try:
        stored = json.loads((folder / CONFIG).read_text())
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG} is not whole, valid JSON: {error}") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise ValueError(f'{folder / CONFIG} must have "format": "{FORMAT}"')
    if stored.get("version") != VERSION:
        raise ValueError(f"{folder / CONFIG} has version {stored.get('version')!r}, this release reads {VERSION}")
    try:
        state = safetensors.load((folder / WEIGHTS).read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"no saved model in {folder}: it has no {WEIGHTS}") from None
    except Exception as error:  # safetensors has an error class of its own, which is an Exception and no more
        raise ValueError(f"{folder / WEIGHTS} is truncated or not a safetensors file: {error}") from error
    return Schema.from_json(json.dumps(stored["schema"])), dict(stored["model"]), state


def load_state(model: nn.Module, state: Mapping[str, Tensor], folder: Path) -> None:
    """Load tensors strictly; a mismatch names the folder."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
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


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
