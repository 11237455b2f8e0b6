"""A trained model on other rows: how well it predicts them, or what it predicts, in constant memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daes.extras import require
from daes.metrics.stream import StreamMetrics
from daes.model import CTRModel
from daes.storage.run_folder import RunFolder
from daes.stream.batch import batch_from_table
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema, no_such_column

Progress = Callable[[int], None]
"""Called with the rows of each batch."""


def load_trained(folder: str | Path, device: str = "cpu") -> CTRModel:
    """The model of a run, or one that `save_pretrained` wrote."""
    run = RunFolder(folder)
    run.recover()
    if run.is_run:
        if not run.model.is_dir():
            raise FileNotFoundError(f"the run in {run.path} has no model yet: `daes train --out {run.path} --resume`")
        return CTRModel.from_pretrained(run.model).to(device)
    return CTRModel.from_pretrained(folder).to(device)


def evaluate(
    model: CTRModel,
    data: Any,
    *,
    label: str | None = None,
    batch_size: int = 8192,
    progress: Progress | None = None,
) -> StreamMetrics:
    """Metrics of a model on rows that it does not learn from.

    Args:
        model: a trained model.
        data: the rows: a `Dataset`, or anything that `Dataset.open` takes; the columns are those of the model's schema.
        label: the column of clicks, if it is not called as in training.
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
    out: str | Path,
    *,
    keep: Sequence[str] = (),
    column: str = "score",
    batch_size: int = 8192,
    progress: Progress | None = None,
) -> int:
    """Write the probability of a click for every row, in the order of the rows; how many there were.

    The file is there whole or not at all. No label is needed.

    Args:
        model: a trained model.
        data: the rows: a `Dataset`, or anything that `Dataset.open` takes.
        out: a path that ends in .parquet or .csv.
        keep: columns of the data to write beside the score.
        column: what the scores are called.
        batch_size: rows scored at once.
        progress: called after every batch.
    """
    schema = Schema(None, model.schema.numerical, model.schema.categorical)
    if column in keep:
        raise ValueError(f"column must not be among those to keep, got {column!r}")
    data = Dataset.open(data, schema=schema)
    source = data.from_start(prefetch=2)
    for name in keep:
        if name not in source.arrow_schema.names:
            raise ValueError(no_such_column(name, source.arrow_schema.names))
    names = list(dict.fromkeys([*schema.columns, *keep]))
    done = 0
    with _writing(Path(out)) as write:
        for table in source.iter_tables(names, batch_size):
            try:
                batch = batch_from_table(table, schema)
            except (ValueError, TypeError) as error:
                raise type(error)(f"rows {done} to {done + table.num_rows - 1}: {error}") from error
            write(table.select(list(keep)).append_column(column, [1 / (1 + np.exp(-logits(model, batch)))]))
            done += table.num_rows
            if progress is not None:
                progress(table.num_rows)
        if not done:
            raise ValueError(f"the data must have at least one row; {data.name} has none")
    return done


@torch.no_grad()
def logits(model: CTRModel, batch: Any) -> Any:
    """Logits (B,) in double precision, of a model in eval mode."""
    model.eval()
    return model(batch).double().cpu().numpy()


@contextmanager
def _writing(path: Path) -> Iterator[Callable[[Any], None]]:
    """What takes tables and appends them to a file, which takes its name once it is whole."""
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"out must end in .parquet or .csv, got {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out must lie in a folder that exists, got {path}")
    module = require("pyarrow.parquet" if path.suffix.lower() == ".parquet" else "pyarrow.csv")
    make = module.ParquetWriter if path.suffix.lower() == ".parquet" else module.CSVWriter
    temporary = path.with_name(f".{path.name}.partial")
    writer: Any = None

    def write(table: Any) -> None:
        nonlocal writer
        writer = writer or make(str(temporary), table.schema)
        writer.write_table(table)

    try:
        yield write
        if writer is not None:
            writer.close()
            temporary.replace(path)
    except BaseException:
        if writer is not None:
            writer.close()
        temporary.unlink(missing_ok=True)
        raise
