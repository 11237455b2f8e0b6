"""A model as ONNX: it scores wherever onnxruntime runs, without torch and without this package.

**Inputs**, for batches of any size, an input that the schema has no columns for left out:

- `numerical` (B, q) float32, columns in the schema's order; NaN is missing, ±inf may occur.
- `categorical` (B, p) int64, columns in the schema's order; the hash of each category, 0 is missing.

**Outputs**: `logit` (B,) and `probability` (B,), its sigmoid.

**Hashes.** A category is hashed as its text in UTF-8 (integers in decimal, booleans as "true" and "false") by the fixed
function that `daes.stream.hashing` defines, byte by byte and with test vectors, so that a server in any language can do
the same; `docs/onnx.md` has it in a dozen lines. Tables and vocabularies are in the file: the server only computes the
hash. A `strict` vocabulary cannot raise there: an unseen id gets the row of unseen ids.

**Metadata** of the file (`custom_metadata_map` in onnxruntime): `daes.format` is "daes.onnx", `daes.version` the
version of this format, `daes.schema` the schema as JSON, `daes.hashes` some texts with their hashes, as JSON, for a
server to test its own hash.
"""

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from daes.extras import require
from daes.stream.hashing import hash_text
from daes.stream.schema import Schema

FORMAT = "daes.onnx"
VERSION = 1
HASHED = ("", "a", "5", "true", "New York", "Zürich, Schweiz", "the quick brown fox")
"""The texts whose hashes are in the file."""

_EXAMPLE_ROWS = 4  # torch treats sizes 0 and 1 as constants


class _Scores(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, numerical: Tensor | None = None, categorical: Tensor | None = None) -> tuple[Tensor, Tensor]:
        logit = self.model(numerical, categorical)
        return logit, torch.sigmoid(logit)


def export_onnx(model: nn.Module, schema: Schema, path: Path, *, device: torch.device | None = None) -> None:
    """Write a model in eval mode, called as `model(numerical, categorical)`, as ONNX.

    Above 2 GB, the limit of such a file, the weights go to another file beside it, `path` + ".data".
    """
    require("onnx")
    require("onnxscript")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    program = _program(_Scores(model), schema, device)
    program.model.metadata_props.update(_metadata(schema))
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        program.save(Path(folder) / path.name)
        # The graph refers to the weights beside it, so it comes last.
        for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == path.name):
            file.replace(path.with_name(file.name))


def _program(scores: nn.Module, schema: Schema, device: torch.device | None) -> Any:
    inputs = {}
    if schema.num_numerical:
        inputs["numerical"] = torch.zeros(_EXAMPLE_ROWS, schema.num_numerical, device=device)
    if schema.num_categorical:
        inputs["categorical"] = torch.zeros(_EXAMPLE_ROWS, schema.num_categorical, dtype=torch.int64, device=device)
    rows = torch.export.Dim("rows")
    with torch.no_grad(), _quietly():
        return torch.onnx.export(
            scores,
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes={name: {0: rows} for name in inputs},
            output_names=["logit", "probability"],
            verbose=False,
        )


def _metadata(schema: Schema) -> dict[str, str]:
    return {
        "daes.format": FORMAT,
        "daes.version": str(VERSION),
        "daes.schema": schema.to_json(),
        "daes.hashes": json.dumps({text: hash_text(text) for text in HASHED}, ensure_ascii=False),
    }


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's warnings and log messages about its own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
