"""Criteo's display advertising rows: a label, 13 counts and 26 hashed categories, in order of time."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from daes.stream.csv import CsvSource
from daes.stream.csv_text import CsvBlocks, CsvFormat
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.files import DataFile, find_files
from daes.stream.parquet import SUFFIXES, ParquetSource
from daes.stream.schema import Schema

CRITEO = Schema(
    label="label",
    numerical=tuple(f"I{number}" for number in range(1, 14)),
    categorical=tuple(f"C{number}" for number in range(1, 27)),
)


def open_criteo(path: str | Path) -> Dataset:
    """Criteo's rows, from what Criteo publishes or from Parquet.

    Args:
        path: `train.txt` of the Kaggle challenge or `day_0`, `day_1`, … of the terabyte log (tab-separated, no header,
            an empty field is missing; plain, .gz or .zst), or Parquet with the columns `label`, `I1` … `I13`,
            `C1` … `C26`; a file, a glob, or the directory that holds them.

    Rows without a label (`test.txt`, 39 fields) give a schema without a label.
    """
    files = _choose(find_files(path), path)
    source: ParquetSource | CsvSource
    if files[0].suffix in SUFFIXES:
        source = ParquetSource(files)
        labelled = "label" in source.arrow_schema.names
    else:
        labelled = _is_labelled(files[0])
        names = CRITEO.columns if labelled else CRITEO.columns[1:]
        source = CsvSource(files, separator="\t", column_names=names, quoting=False)
    lacking = [name for name in CRITEO.columns[1:] if name not in source.arrow_schema.names]
    if lacking:
        raise SourceError(f"{files[0].path} must have the columns I1 … I13 and C1 … C26; {lacking} are missing")
    return Dataset(source, CRITEO if labelled else replace(CRITEO, label=None), name="criteo")


def _choose(files: list[DataFile], path: str | Path) -> list[DataFile]:
    """Of several files, the Parquet files, or else the days, or else the training file."""
    if len(files) == 1:
        return files
    chosen = (
        [file for file in files if file.suffix in SUFFIXES]
        or [file for file in files if file.name.startswith("day_")]
        or [file for file in files if file.name.startswith("train")]
    )
    if chosen:
        return chosen
    raise FileNotFoundError(
        f"{path} must contain *.parquet, day_* or train.txt, got {', '.join(f.name for f in files)}"
    )


def _is_labelled(file: DataFile) -> bool:
    with closing(CsvBlocks(file, CsvFormat(separator="\t", column_names=CRITEO.columns, quoting=False))) as blocks:
        first = (blocks.next() or b"").partition(b"\n")[0]
    fields = first.count(b"\t") + 1
    if fields not in (39, 40):
        raise SourceError(f"{file.path} must have 40 fields per row, or 39 without labels; the first has {fields}")
    return fields == 40
