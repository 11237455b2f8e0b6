"""The format of the NeurIPS 2018 challenge "AutoML for Lifelong Machine Learning" (AutoML3).

A dataset is a folder:

    NAME_feat.type          one line per column: Numerical, Categorical, Multi-value or Time
    NAME_public.info        `key = value` lines (optional here)
    NAME_train1.data …      rows in order of time; fields separated by a space or a tab, NaN is missing,
    NAME_test1.data …       the values of a multi-value field separated by commas
    NAME_train1.solution …  the label of each row, 0 or 1
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daes.stream.arrow import pa, pc
from daes.stream.bad_rows import BadRows
from daes.stream.csv import infer_types
from daes.stream.csv_rows import CsvCursor
from daes.stream.csv_text import MISSING, CsvFormat
from daes.stream.cursor import Cursor, Position, SourceError
from daes.stream.dataset import Dataset
from daes.stream.files import DataFile, find_files, natural_order
from daes.stream.files_source import FilesSource
from daes.stream.schema import Schema

_PREFIXES = {"numerical": "I", "categorical": "C", "multi-value": "M", "time": "T"}
_DATA = re.compile(r"(?P<name>.+)_(?P<part>train|test)[0-9]*\.data")
_LABELS = CsvFormat(column_names=("label",), quoting=False)


def open_automl(path: str | Path, *, solutions: str | Path | None = None) -> Dataset:
    """A dataset of the challenge: all training batches, then all test batches, each in the order of their numbers.

    Columns are named by kind and counted from 1: numerical `I1`…, categorical `C1`…, multi-value `M1`…, time `T1`….
    The first value of a multi-value field is its category.
    The first time column is the schema's time, as an integer, 0 if it is missing; further ones are not used.
    Files without a solution are left out, with a note, unless none has one: then the schema has no label.

    Args:
        path: the folder of one dataset.
        solutions: a folder of solutions that are not next to their data (the challenge kept those of the test batches
            in a separate folder).
    """
    files = find_files(path)
    name, data = _data_files(files, path)
    _check_info(files, name)
    columns = _columns(files, name)
    known = {file.name: file for file in (*files, *(find_files(solutions) if solutions is not None else ()))}
    solution = {file.path: file.name.removesuffix(".data") + ".solution" for file in data}
    labels = {path: known[name] for path, name in solution.items() if name in known}
    labelled = [file for file in data if file.path in labels]
    notes = []
    if labelled and len(labelled) < len(data):
        left_out = ", ".join(file.name for file in data if file not in labelled)
        notes.append(f"{len(data) - len(labelled)} files have no solution and were left out: {left_out}")
    kinds = {kind: [column for column in columns if column[0] == prefix] for kind, prefix in _PREFIXES.items()}
    if len(kinds["time"]) > 1:
        notes.append(f"only the first of the time columns is used: {', '.join(kinds['time'])}")
    schema = Schema(
        label="label" if labelled else None,
        numerical=tuple(kinds["numerical"]),
        categorical=(*kinds["categorical"], *kinds["multi-value"]),
        time=kinds["time"][0] if kinds["time"] else None,
    )
    source = AutoMLSource(labelled or data, columns, labels)
    return Dataset(source, schema, name=f"automl:{name}", notes=notes)


def _data_files(files: Sequence[DataFile], path: str | Path) -> tuple[str, list[DataFile]]:
    matches = [(match, file) for file in files if (match := _DATA.fullmatch(file.name))]
    names = sorted({match["name"] for match, _ in matches})
    if len(names) != 1:
        raise FileNotFoundError(
            f"{path} must be the folder of one dataset, NAME_train1.data and so on, got "
            + (", ".join(names) if names else "no such file")
        )
    ordered = sorted(matches, key=lambda pair: (pair[0]["part"] == "test", natural_order(pair[1].name)))
    return names[0], [file for _, file in ordered]


def _check_info(files: Sequence[DataFile], name: str) -> None:
    info = _text(files, f"{name}_public.info")
    for key, accepted in (("is_sparse", "0"), ("task", "binary.classification"), ("target_num", "1")):
        found = re.search(rf"^{key}\s*=\s*'?([^'\n]*?)'?\s*$", info or "", re.MULTILINE)
        if found and found[1] != accepted:
            raise SourceError(f"{name}_public.info must say {key} = {accepted}, got {key} = {found[1]}")


def _columns(files: Sequence[DataFile], name: str) -> list[str]:
    text = _text(files, f"{name}_feat.type")
    if text is None:
        raise FileNotFoundError(f"the dataset must have a file {name}_feat.type with the type of each column")
    columns: list[str] = []
    for number, kind in enumerate(text.split(), start=1):
        prefix = _PREFIXES.get(kind.lower())
        if prefix is None:
            raise SourceError(
                f"{name}_feat.type must name Numerical, Categorical, Multi-value or Time columns, got "
                f"{kind!r} in line {number}"
            )
        columns.append(f"{prefix}{sum(column[0] == prefix for column in columns) + 1}")
    return columns


def _text(files: Sequence[DataFile], name: str) -> str | None:
    for file in files:
        if file.name == name:
            with file.filesystem.open_input_stream(file.path) as stream:
                return bytes(stream.read()).decode()
    return None


class AutoMLSource(FilesSource):
    """Data files, in order, with the names of their columns and the solution for each path; see `open_automl`."""

    def __init__(self, where: Sequence[DataFile], columns: Sequence[str], labels: Mapping[str, DataFile]) -> None:
        super().__init__(where)
        self._labels = dict(labels)
        self._format = _format(self._files[0], columns)
        self._columns = list(columns)

    def _file_schema(self, file: DataFile) -> Any:
        return self.arrow_schema

    def _first_schema(self) -> Any:
        inferred = infer_types(self._files[0], self._format)
        fields = []
        for name in self._columns:
            if name[0] == "T":
                kind = inferred.field(name).type
                fields.append((name, kind if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else pa.int64()))
            else:
                fields.append((name, pa.float64() if name[0] == "I" else pa.string()))
        return pa.schema([*fields, ("label", pa.float64())] if self._labels else fields)

    def _file_cursor(
        self, file: DataFile, types: Mapping[str, Any], schema: Schema | None, place: Position, rows_at_once: int
    ) -> Cursor:
        parsed = {}
        for name, kind in types.items():
            if name != "label":
                number = pa.float64() if kind == pa.int64() else kind  # a time may be written as 1467331200.0
                parsed[name] = pa.string() if name[0] in "CM" else number
        data = CsvCursor(file, self._format, parsed or {self._columns[0]: pa.string()}, {}, BadRows())
        labels = None
        if "label" in types:
            labels = CsvCursor(self._labels[file.path], _LABELS, {"label": pa.float64()}, {}, BadRows())
        return _Paired(data, labels, list(types), file.path)


def _format(file: DataFile, columns: Sequence[str]) -> CsvFormat:
    with file.filesystem.open_input_stream(file.path) as stream:
        line = bytes(stream.read(1 << 20)).partition(b"\n")[0].rstrip(b"\r")
    separator = "\t" if b"\t" in line else " "
    # Older tools of the challenge end each row with a separator.
    trailing = ("(end of row)",) if line.endswith(separator.encode()) else ()
    return CsvFormat(separator, column_names=(*columns, *trailing), quoting=False, missing_categories=MISSING)


@dataclass
class _Paired(Cursor):
    """Rows of a data file with their labels, as a `Cursor`."""

    data: CsvCursor
    labels: CsvCursor | None
    columns: list[str]
    path: str
    row: int = 0

    def ready(self) -> bool:
        if self.data.ready():
            return True
        if self.labels is not None and self.labels.ready():
            raise SourceError(f"{self.path} has {self.row} rows; its solution has more")
        return False

    def read(self, limit: int) -> Any:
        if self.labels is None:
            piece = self.data.read(limit)
        elif not self.labels.ready():
            raise SourceError(f"{self.path} has more rows than its solution has labels: {self.row}")
        else:
            rows = min(limit, self.data.num_left(), self.labels.num_left())
            piece = self.data.read(rows).append_column("label", self.labels.read(rows).column("label"))
        self.row += piece.num_rows
        return self._finish(piece)

    def _finish(self, table: Any) -> Any:
        out = {}
        for name in self.columns:
            column = table.column(name)
            if name[0] == "M":
                column = pc.list_element(pc.split_pattern(column, ","), 0)
            elif name[0] == "T" and pa.types.is_floating(column.type):
                column = pc.floor(pc.fill_null(column, 0)).cast(pa.int64())
            out[name] = column
        return pa.table(out)

    def place(self) -> Position:
        return {"skip": self.row}

    def close(self) -> None:
        self.data.close()
        if self.labels is not None:
            self.labels.close()
