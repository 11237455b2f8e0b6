"""A whole run in a folder: read, train, watch, keep, and go on after a stop."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import FORMAT, VERSION, RunFolder, strict
from daes.stream.batch import Batch
from daes.stream.source import BatchError, Source
from daes.training.config import TrainConfig
from daes.training.data import Data
from daes.training.environment import environment
from daes.training.monitor import Monitor, plain
from daes.training.optimizer import count_parameters
from daes.training.trainer import Callback, StreamTrainer, TrainResult

_MUST_AGREE = ("data", "schema", "model", "training", "run")
_MAY_CHANGE = {"data": ("max_rows",), "training": ("checkpoint_every", "cuda_graphs"), "run": ("keep", "prefetch")}


class RunExistsError(ValueError):
    """There is something at the path of a new run."""


@dataclass(frozen=True)
class Run:
    """A run that is over.

    Args:
        folder: where its files are.
        model: what was trained.
        result: what the pass gave.
        resumed_at: rows that were done when it went on; None if it began anew.
        report: the page to look at, None if none was written.
    """

    folder: RunFolder
    model: CTRModel
    result: TrainResult
    resumed_at: int | None = None
    report: Path | None = None


def train_run(
    data: Data,
    folder: str | Path,
    *,
    model: Mapping[str, Any] | None = None,
    config: TrainConfig | None = None,
    sample_rows: int = 10_000,
    device: str = "cpu",
    keep: int = 3,
    prefetch: int = 2,
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[Path], Path] | None = None,
    options: Mapping[str, Any] | None = None,
    on_start: Callable[[StreamTrainer, int | None], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train a model in one pass over a stream and keep everything about it in a folder (docs/run-folder.md).

    Args:
        data: the rows; its `max_rows` ends the pass.
        folder: where to write. Something that is there already is an error, unless one of the next two is given.
        model: arguments of `CTRModel.from_sample`, as `{"embedding": "daes", "backbone": "deepfm"}`.
        config: how to train; its seed is also that of the model's start.
        sample_rows: rows at the start that sizes, context and offline methods are found on.
        device: where to compute.
        keep: checkpoints that are kept.
        prefetch: batches read ahead in a thread; 0 for none.
        resume: go on where the run in the folder stopped, to the same bits as if it never had; what configures the
            result must be as it was. Begins anew where there is nothing.
        overwrite: remove the run that is there.
        report: makes a page of the finished folder, as `daes.report.page.write_report` does.
        options: kept in config.json beside what was made of them.
        on_start: called with the trainer and the rows of the stream, if known, before the first batch.
        callbacks: called after every batch.

    >>> import tempfile
    >>> data = Data.find("adstream:3000")
    >>> path = Path(tempfile.mkdtemp()) / "run"
    >>> run = train_run(data, path, model={"backbone": "fnn"}, config=TrainConfig(batch_size=500))
    >>> run.result.rows, run.folder.read("metrics")["rows"], CTRModel.from_pretrained(run.folder.model).dim
    (3000, 3000, 16)
    """
    config = config or TrainConfig()
    place = RunFolder(folder)
    _make_room(place, resume, overwrite)
    stream = data.open(prefetch=prefetch)
    sample = read_sample(stream.source, data, sample_rows, config)
    torch.manual_seed(config.seed)
    made = CTRModel.from_sample(data.schema, sample, **(model or {})).to(device)
    description = {
        "data": data.describe(stream),
        "schema": json.loads(data.schema.to_json()),
        "model": made.config,
        "training": asdict(config),
        "run": {"sample_rows": sample_rows, "device": device, "keep": keep, "prefetch": prefetch},
    }
    if resume and place.is_run:
        _refuse_other_run(place, description)
    else:
        place.write("config", _config(description, made, device, options))
    monitor = Monitor(data.schema)
    with CheckpointStore(place.checkpoints, keep=keep) as store:
        trainer = StreamTrainer(made, config, store=store, callbacks=[monitor, *callbacks], extra={"monitor": monitor})
        resumed_at = trainer.restore(stream.source) if resume else None
        if on_start is not None:
            on_start(trainer, data.rows_of(stream))
        result = trainer.run(stream.source, resume=False, max_rows=data.max_rows)
    made.eval()
    made.save_pretrained(place.model)
    write_results(place, trainer, result, monitor)
    return Run(place, made, result, resumed_at, report(place.path) if report else None)


def read_sample(source: Source, data: Data, rows: int, config: TrainConfig) -> Batch:
    """The first rows of the stream, in the batches of training, without those that are refused where the policy is so.

    The source stands at its start again afterwards.
    """
    rows = rows if data.max_rows is None else min(rows, data.max_rows)
    pieces: list[Batch] = []
    while sum(map(len, pieces)) < rows:
        try:
            for batch in source.iter_batches(data.schema, config.batch_size):
                pieces.append(batch)
                if sum(map(len, pieces)) >= rows:
                    break
            break
        except BatchError as error:
            if config.bad_batch == "stop":
                raise
            source.seek(error.next_position)
    if not pieces:
        raise ValueError(f"the data must have at least one row that can be read; {data.what} has none")
    source.seek({"row": 0})
    return Batch.concat(pieces)[:rows]


def write_results(place: RunFolder, trainer: StreamTrainer, result: TrainResult, monitor: Monitor) -> None:
    """Write metrics.json, history.json and monitor.json."""
    reliability = trainer.metrics.calibration.reliability()._asdict()
    place.write(
        "metrics",
        {
            "rows": result.rows,
            "seconds": result.seconds,
            "rows_per_second": result.rows_per_second,
            "metrics": result.metrics,
            "undefined": trainer.metrics.undefined(),
            "bad_batches": [asdict(bad) for bad in result.bad_batches],
            "reliability": {name: plain(values) for name, values in reliability.items()},
        },
    )
    names = list(result.history[0]) if result.history else []
    place.write("history", {name: [record[name] for record in result.history] for name in names})
    place.write("monitor", monitor.to_dict())


def _make_room(place: RunFolder, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise ValueError("resume and overwrite exclude each other; both are given")
    if overwrite:
        place.clear()
        return
    if not place.exists:
        return
    if not resume:
        raise RunExistsError(
            f"{place.path} exists already: --resume (resume=True) goes on with the run in it, --overwrite "
            "(overwrite=True) replaces it"
        )
    if not place.is_run:
        raise RunExistsError(f"{place.path} holds something other than a run and is left alone")


def _config(
    description: Mapping[str, Any], model: CTRModel, device: str, options: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **description,
        "parameters": count_parameters(model),
        "options": dict(options or {}),
        "environment": environment(device),
    }


def _refuse_other_run(place: RunFolder, description: Mapping[str, Any]) -> None:
    """A run goes on as it was configured, or it would be neither the old one nor a new one."""
    stored, given = place.read_config(), strict(description)
    for part in _MUST_AGREE:
        free = _MAY_CHANGE.get(part, ())
        for name in dict.fromkeys([*stored[part], *given[part]]):
            old, new = stored[part].get(name), given[part].get(name)
            if name not in free and old != new:
                raise ValueError(
                    f"{place.path} was begun with {part}.{name}={old!r} and cannot go on with {new!r}: "
                    "start a new run, or leave it as it was"
                )
