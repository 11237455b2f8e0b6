"""A model in one file that scores without this package: as ONNX for onnxruntime, or as a program for torch.

**Inputs**, for batches of any size; an input without columns in the schema does not exist:

- `numerical` (B, q) float32, columns in the schema's order; NaN is missing, ±inf may occur.
- `categorical` (B, p) int64, columns in the schema's order; the hash of each category, 0 is missing.

**Outputs**: `logit` (B,) and `probability` (B,), its sigmoid.

**Hashes.** A category is hashed as its text in UTF-8 (integers in decimal, booleans as "true" and "false") by the fixed
function of `daes.stream.hashing`, which is specified byte by byte and with test vectors, so that a server in any
language can compute it; `docs/onnx.md` has it in a dozen lines. Tables and vocabularies are in the file: the server
only computes the hash. A `strict` vocabulary cannot raise there: an unseen id gets the row of unseen ids.

**Metadata** of the file (`custom_metadata_map` in onnxruntime, the extra file "daes.json" of a torch program):
`daes.format` is "daes.onnx" or "daes.torch", `daes.version` the version of this format, `daes.release` that of the
package, `daes.schema` the schema as JSON, `daes.sha256` the SHA-256 of the model's tensors, `daes.hashes` some texts
with their hashes, as JSON, for a server to test its own hash.
"""

import hashlib
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import daes
from daes.extras import require
from daes.storage.durable import write_bytes
from daes.stream.hashing import hash_text
from daes.stream.schema import Schema

FORMAT = "daes.onnx"
TORCH_FORMAT = "daes.torch"
VERSION = 1
TORCH_METADATA = "daes.json"
"""The extra file of a torch program with the metadata, as a JSON object."""
HASHED = ("", "a", "5", "true", "New York", "Zürich, Schweiz", "the quick brown fox")
"""The texts whose hashes are in the file."""

_EXAMPLE_ROWS = 4  # torch treats sizes 0 and 1 as constants


class _Scores(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, numerical: Tensor | None = None, categorical: Tensor | None = None) -> tuple[Tensor, Tensor]:
        logit = self.model(numerical, categorical)
        # Not torch.sigmoid: onnxruntime's has an error of about 1e-8, which is large for a small probability.
        return logit, 1 / (1 + torch.exp(-logit))


def export_onnx(model: nn.Module, schema: Schema, path: Path, tables: nn.Module | None = None) -> None:
    """Write a model in eval mode as ONNX.

    Above 2 GB, the limit of such a file, the weights are in a second file, `path` + ".data".

    Args:
        model: what the file is made of, as its metadata tell.
        schema: the inputs.
        path: the file.
        tables: what computes the model's logits in fewer operations (`daes.model.tabled`), if there is such a thing.
    """
    require("onnx")
    require("onnxscript")
    _check_folder(path)
    inputs, shapes = _example_inputs(model, schema)
    with torch.no_grad(), quiet_export():
        program: Any = torch.onnx.export(
            _Scores(tables or model),
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes=shapes,
            output_names=["logit", "probability"],
            verbose=False,
        )
    program.model.metadata_props.update(_metadata(FORMAT, model, schema))
    _write(path, program.save)


def export_torch(model: nn.Module, schema: Schema, path: Path) -> None:
    """Write a model in eval mode as a program of `torch.export`, which torch runs without this package.

    `torch.export.load(path).module()(numerical=…, categorical=…)` returns logits and probabilities.
    """
    _check_folder(path)
    program = scores_program(model, schema)
    metadata = json.dumps(_metadata(TORCH_FORMAT, model, schema), ensure_ascii=False)
    content = BytesIO()  # torch itself would abort the process if the disk is full
    with quiet_export():
        torch.export.save(program, content, extra_files={TORCH_METADATA: metadata})
    write_bytes(path, content.getbuffer())


def scores_program(model: nn.Module, schema: Schema) -> torch.export.ExportedProgram:
    """A model in eval mode as a graph of torch's operators, from the inputs to logits and probabilities."""
    inputs, shapes = _example_inputs(model, schema)
    with torch.no_grad(), quiet_export():
        return torch.export.export(_Scores(model), (), inputs, dynamic_shapes=shapes)


def _example_inputs(model: nn.Module, schema: Schema) -> tuple[dict[str, Tensor], dict[str, dict[int, Any]]]:
    """Inputs of a model by name, and their dynamic shapes: the first dimension is the number of rows."""
    inputs, device = {}, next(model.parameters()).device
    if schema.num_numerical:
        inputs["numerical"] = torch.zeros(_EXAMPLE_ROWS, schema.num_numerical, device=device)
    if schema.num_categorical:
        inputs["categorical"] = torch.zeros(_EXAMPLE_ROWS, schema.num_categorical, dtype=torch.int64, device=device)
    rows = torch.export.Dim("rows")
    return inputs, {name: {0: rows} for name in inputs}


def model_digest(model: nn.Module) -> str:
    """The SHA-256 of a model's tensors and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")


def _write(path: Path, save: Callable[[Path], object]) -> None:
    """Let `save` write a file and others beside it in a temporary folder; they are moved when all are complete."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            save(Path(folder) / path.name)
            # The graph refers to the weights beside it, so it is moved last.
            for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == path.name):
                file.replace(path.with_name(file.name))
    except OSError as error:  # names a temporary file, or none
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _metadata(kind: str, model: nn.Module, schema: Schema) -> dict[str, str]:
    return {
        "daes.format": kind,
        "daes.version": str(VERSION),
        "daes.release": daes.__version__,
        "daes.schema": schema.to_json(),
        "daes.sha256": model_digest(model),
        "daes.hashes": json.dumps({text: hash_text(text) for text in HASHED}, ensure_ascii=False),
    }


@contextmanager
def quiet_export() -> Iterator[None]:
    """Suppress the exporter's warnings and log messages about its own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
