"""A run's model as one file, with a Python file that prepares rows for it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from daes.choices import check_choices
from daes.serving import rows
from daes.serving.versions import LoadedModel, ModelFolder

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""The file ending of each format."""


def export_run(folder: str | Path, out: str | Path, kind: str | None = None) -> tuple[LoadedModel, Path]:
    """Write the newest model of a run, frozen, to one file, and a Python file that prepares rows for it.

    `daes.model.export` says what is in the file. The Python file, `model_rows.py` beside `model.onnx`, is
    `daes.serving.rows`, with what meant a missing value in training: it needs the standard library alone.

    Args:
        folder: a folder of `daes train`, while it trains or afterwards, or a saved model.
        out: the file to write.
        kind: "onnx" or "torch"; by the file's ending (.onnx, .pt2) if None.

    Returns:
        What was exported, and the Python file.
    """
    path = Path(out)
    if kind is None:
        kinds = {suffix: kind for kind, suffix in SUFFIXES.items()}
        if path.suffix.lower() not in kinds:
            raise ValueError(f"out must end in {' or '.join(kinds)}, or the format must be given, got {path}")
        kind = kinds[path.suffix.lower()]
    check_choices("format", [kind], tuple(SUFFIXES))
    loaded = ModelFolder(folder).load_newest()
    model = loaded.model.freeze()
    if kind == "onnx":
        model.to_onnx(path)
    else:
        model.to_torch(path)
    rows_file = path.with_name(f"{path.stem}_rows.py")
    rows_file.write_text(_code_for_rows(loaded.missing), encoding="utf-8")
    return loaded, rows_file


def _code_for_rows(missing: Mapping[str, Sequence[str]]) -> str:
    """The code of `daes.serving.rows`, in which `missing` and `missing_categories` have these texts."""
    code = Path(rows.__file__).read_text(encoding="utf-8")
    for name, texts in missing.items():
        declared = f"\n{name.upper()}: tuple[str, ...] = "
        code = code.replace(f"{declared}()", f"{declared}{tuple(texts)!r}")
    return code
