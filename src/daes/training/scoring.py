"""Evaluate a trained model on other rows, or write its predictions for them, in constant memory."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from daes.metrics.base import sigmoid
from daes.metrics.stream import StreamMetrics
from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointStore
from daes.storage.durable import replacing
from daes.storage.run_folder import RunFolder
from daes.storage.saved_model import CONFIG
from daes.stream.arrow import pa, pa_csv, pc, pq
from daes.stream.bad_rows import BadRow, BadRows
from daes.stream.batch import Batch, batch_from_table
from daes.stream.csv import CsvSource
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema

_log = logging.getLogger("daes.training")

Progress = Callable[[int], None]
"""Called with the number of rows of each batch."""


@dataclass(frozen=True)
class Predicted:
    """What `predict` wrote.

    Args:
        rows: number of rows of the output.
        bad_rows: the rows without a score, because they cannot be read.
    """

    rows: int
    bad_rows: BadRows


def load_trained(folder: str | Path, device: str = "cpu") -> CTRModel:
    """The model of a run, or one that `save_pretrained` wrote."""
    run = RunFolder(folder)
    run.recover()
    if run.is_run and not (run.model / CONFIG).is_file():  # it is written last
        command = f"daes train --out {quote(str(run.path))} --resume"
        raise FileNotFoundError(f"the run in {run.path} has no model yet: `{command}`")
    saved, latest = run.saved_step(), max(CheckpointStore(run.checkpoints).steps(), default=0)
    if 0 < saved < latest:
        _log.warning(
            "the model of %s is that of step %d; the run has gone on to step %d, and its model is written at the end",
            *(run.path, saved, latest),
        )
    return CTRModel.from_pretrained(run.model if run.is_run else folder).to(device)


def evaluate(
    model: CTRModel,
    data: Any,
    *,
    label: str | None = None,
    batch_size: int = 8192,
    progress: Progress | None = None,
) -> StreamMetrics:
    """Metrics of a model on some rows; it does not learn from them.

    Args:
        model: a trained model.
        data: the rows: a `Dataset`, or anything that `Dataset.open` takes; the columns are those of the model's schema.
        label: the column of clicks, if its name is not that of training.
        batch_size: rows scored at once.
        progress: called after every batch.
    """
    schema = replace(model.schema, label=label or model.schema.label, time=None)
    if schema.label is None:
        raise ValueError("label must be named, since the model was saved without one")
    source = Dataset.open(data, schema=schema).from_start(prefetch=2)
    metrics = StreamMetrics(window=None)
    for batch in source.iter_batches(schema, batch_size):
        assert batch.label is not None
        metrics.update(logits(model, batch), batch.label, batch.weight)
        if progress is not None:
            progress(len(batch))
    return metrics


def predict(
    model: CTRModel,
    data: Any,
    out: str | Path | BinaryIO,
    *,
    keep: Sequence[str] = (),
    column: str = "score",
    batch_size: int = 8192,
    progress: Progress | None = None,
) -> Predicted:
    """Write the probability of a click for every row, in the order of the rows.

    The file is written completely or not at all. No label is needed. If bad rows are skipped (`Dataset.open(…,
    bad_rows="skip")`), their score is empty; it is NaN in a CSV file of scores alone, since readers leave out blank
    lines.

    Args:
        model: a trained model.
        data: the rows: a `Dataset`, or anything that `Dataset.open` takes.
        out: a path that ends in .parquet or .csv and is not one of the files read, or a binary stream, for CSV.
        keep: columns of the data to write beside the score; those of a CSV file are copied as text.
        column: the name of the column of scores.
        batch_size: rows scored at once.
        progress: called after every batch.
    """
    schema = Schema(None, model.schema.numerical, model.schema.categorical)
    if not column:
        raise ValueError("column must be the name of the scores, got ''")
    if column in keep:
        raise ValueError(f"column must not be among those to keep, got {column!r}")
    if repeated := [name for name, count in Counter(keep).items() if count > 1]:
        raise ValueError(f"keep must name every column once, got {', '.join(map(repr, repeated))} more than once")
    data = Dataset.open(data, schema=schema)
    if isinstance(out, str | Path):
        _refuse_input(Path(out), data)
    bad_rows = BadRows(getattr(data.source, "paths", ()))
    done = 0
    with _writing(out) as write:
        for kept, batch, good in _aligned_rows(data, schema, keep, batch_size, bad_rows):
            scores = np.empty(len(good))
            scores[good] = sigmoid(logits(model, batch))
            values = pa.array(scores, mask=~good)
            # A table without columns has no number of rows.
            write(kept.append_column(column, values) if keep else pa.table({column: values}))
            done += len(scores)
            if progress is not None:
                progress(len(scores))
        if not done:
            raise ValueError(f"the data must have at least one row; {data.name} has none")
    return Predicted(done, bad_rows)


def _aligned_rows(
    data: Dataset, schema: Schema, keep: Sequence[str], batch_size: int, bad_rows: BadRows
) -> Iterator[tuple[Any, Batch, NDArray[np.bool_]]]:
    """All rows of the data in order, `batch_size` at a time.

    Yields a pyarrow Table of the columns to copy (for a CSV file their unparsed text), a Batch of the rows that can be
    read, and a mask of these among all rows, (rows,) bool. If bad rows are skipped, they are added to `bad_rows`.
    """
    names = list(dict.fromkeys([*schema.columns, *keep]))
    csv = data.source if isinstance(data.source, CsvSource) else None
    text = None if csv is None else csv.as_text()
    start = 0
    for table in data.with_source(text or data.source).from_start(prefetch=2).iter_tables(names, batch_size):
        good = np.ones(table.num_rows, dtype=bool)
        read = table
        if csv is not None and text is not None:
            read, reasons = _parsed(csv, table, schema)
            good[list(reasons)] = False
            for index in sorted(reasons):
                path, number = text.row_of(start + index)
                row = BadRow(path, number, reasons[index] or text.bad_rows.reason(path, number))
                if not csv.skips:
                    raise SourceError(str(row))
                bad_rows.add(row)
        try:
            batch = batch_from_table(read, schema)
        except (ValueError, TypeError) as error:
            raise type(error)(f"rows {start + 1} to {start + table.num_rows} of {data.name}: {error}") from error
        yield table.select(list(keep)), batch, good
        start += table.num_rows


def _parsed(source: CsvSource, text: Any, schema: Schema) -> tuple[Any, dict[int, str]]:
    """The rows that can be parsed, and why others cannot; "" for rows of nulls, which the source has noted."""
    blank = np.flatnonzero(text.column(0).is_null().to_numpy())
    if not len(blank):
        return source.parse(text, schema)
    whole = np.setdiff1d(np.arange(text.num_rows), blank)
    parsed, reasons = source.parse(text.take(whole), schema)
    return parsed, {int(whole[index]): reason for index, reason in reasons.items()} | dict.fromkeys(blank.tolist(), "")


def _refuse_input(out: Path, data: Dataset) -> None:
    """Refuse to overwrite a file that is read."""
    for path in getattr(data.source, "paths", ()):
        if out.exists() and Path(path).exists() and out.samefile(path):
            raise ValueError(f"out must not be one of the files read, got {out}")


@torch.no_grad()
def logits(model: CTRModel, batch: Any) -> Any:
    """Logits (B,) in double precision, of the model in eval mode."""
    with model.scoring():
        return model(batch).double().cpu().numpy()


@contextmanager
def _writing(out: str | Path | BinaryIO) -> Iterator[Callable[[Any], None]]:
    """A function that appends tables to a file, which is replaced at the end, or to a stream as CSV."""
    make = pa_csv.CSVWriter
    opened: AbstractContextManager[BinaryIO]
    if isinstance(out, str | Path):
        path = Path(out)
        if path.suffix.lower() not in (".parquet", ".csv"):
            raise ValueError(f"out must end in .parquet or .csv, got {path}")
        if path.suffix.lower() == ".parquet":
            make = pq.ParquetWriter
        opened = replacing(path, follow_symlinks=True)
    else:
        opened = nullcontext(out)
    writer: Any = None
    schema: Any = None
    options: dict[str, Any] = {}
    with opened as file:

        def write(table: Any) -> None:
            nonlocal writer, schema
            if make is pa_csv.CSVWriter and table.num_columns == 1:
                text = pc.fill_null(table.column(0).cast(pa.string()), "NaN")
                table = pa.table({table.column_names[0]: text})
                options["write_options"] = pa_csv.WriteOptions(quoting_style="none")
            if writer is None:
                for column in table.schema if make is pa_csv.CSVWriter else ():
                    if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
                        raise ValueError(
                            f"out must be a .parquet file to keep {column.name!r}, which is of type {column.type}"
                        )
                writer, schema = make(file, table.schema, **options), table.schema
            try:
                rows = table.cast(schema)
            except pa.ArrowInvalid as error:
                raise SourceError(f"a column to keep must be of one type in all files: {error}") from error
            try:
                writer.write_table(rows)
            except pa.ArrowInvalid as error:
                raise SourceError(
                    f"out must be a .parquet file to keep bytes that are not UTF-8 text: {error}"
                ) from error

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()
                file.flush()
