"""A training run in a folder: read, train, monitor, save, and continue after an interruption."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from daes import native
from daes.embedding import CategoricalEmbedding, DividedEmbedding
from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointStore
from daes.storage.dead_letters import DeadLetters
from daes.storage.durable import write_text
from daes.storage.run_folder import FORMAT, VERSION, RunFolder, strict
from daes.storage.segments import Segments
from daes.stream.bad_rows import BadRows
from daes.stream.batch import Batch
from daes.stream.broker_url import connect
from daes.stream.dataset import Dataset
from daes.stream.messages import LabelReader, MessageSource, parse_offsets
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.consumed import ConsumedRows
from daes.training.environment import environment, find_device
from daes.training.importance import Importance, RecentRows, feature_importance
from daes.training.label_join import LabelJoin, LateLabels
from daes.training.monitor import Monitor
from daes.training.optimizer import count_parameters
from daes.training.parent import ParentRun
from daes.training.processes.checksum import model_checksum
from daes.training.processes.group import Processes
from daes.training.processes.reading import read_together
from daes.training.processes.tables import MAP_ABOVE
from daes.training.processes.trainer import ProcessTrainer
from daes.training.progress import ProgressFile, history_by_name, reliability_of
from daes.training.step import TrainingError
from daes.training.stopping import TrainingStopped, on_stop_signal
from daes.training.trainer import BatchCallback, RecordCallback, StreamTrainer, TrainResult, WaitCallback

_log = logging.getLogger("daes.training")

_PARTS = ("data", "schema", "model", "training", "run", "options")
_CHANGEABLE = {
    "data": ("limit", "rows"),
    "training": ("checkpoint_every", "checkpoint_minutes", "cuda_graphs", "sync_every"),
    "run": ("keep", "prefetch", "world_size"),
}

_ROWS_AHEAD = 4096
"""Rows read ahead, if the batches are small: every change between the threads costs."""
_LISTED_BAD_ROWS = 20


class RunExistsError(ValueError):
    """The folder of a new run exists already."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Args:
        folder: its files.
        model: the trained model, in eval mode; with divided tables, one with all rows in the first process alone.
        result: metrics, history and bad batches.
        resumed_at: rows that were done when it was resumed; None if it started from the beginning.
        report: the HTML report, None if none was written.
        bad_rows: the rows that were left out.
        stopped: the signal that ended a run on a live stream, as a sentence; None if its rows came to an end.
    """

    folder: RunFolder
    model: CTRModel
    result: TrainResult
    resumed_at: int | None = None
    report: Path | None = None
    bad_rows: BadRows = field(default_factory=BadRows)
    stopped: str | None = None


def train_run(
    data: Dataset,
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
    parent: str | Path | None = None,
    report: Callable[[Path], Path] | None = None,
    options: Mapping[str, Any] | None = None,
    on_start: Callable[[StreamTrainer, int | None], None] | None = None,
    callbacks: Sequence[BatchCallback] = (),
    on_record: Sequence[RecordCallback] = (),
    on_wait: Sequence[WaitCallback] = (),
    labels: LateLabels | None = None,
    tables: type[CategoricalEmbedding] = CategoricalEmbedding,
) -> TrainedRun:
    """Train a model in one pass over a stream and write everything about it to a folder (docs/run-folder.md).

    Ctrl-C and SIGTERM end training after the current batch: a checkpoint is written, then `TrainingStopped` is raised.
    A run on a live stream (`Dataset.is_live`) has no other end: it then writes its model and its metrics.

    Args:
        data: the rows.
        folder: where to write. It must not hold anything, unless `resume` or `overwrite` is given. It is locked from
            before the first byte is written to the end: a second trainer in it is an error.
        model: arguments of `CTRModel.from_sample`, as `{"embedding": "daes", "backbone": "deepfm"}`.
        config: how to train; its seed is also that of the initial weights.
        sample_rows: first rows, from which table sizes, context fields and offline methods are determined.
        device: "cpu", "cuda", "cuda:1", … or "auto" for a CUDA device if there is one.
        keep: number of checkpoints to keep.
        prefetch: batches read ahead in a thread, more of small ones; 0 for none.
        resume: continue the run in the folder from its newest checkpoint, to the same bits as without the
            interruption; whatever determines the result must be unchanged. Data may have grown at the end since, by
            rows or by files; if the rows read so far have changed, that is an error. Starts a new run if there is none.
        overwrite: replace the run in the folder. The old run stays as it is until the new one, in the folder's
            `replacement`, is complete; `resume` continues an interrupted one. A folder without a run is an error.
        parent: a run to start from: its model with distributions, vocabularies and evidence, and its optimisers, as
            they were at its newest checkpoint. The columns are the parent's, and `model` is not given.
        report: writes a page about the finished folder, as `daes.report.page.write_report` does.
        options: the user's own options, stored in config.json.
        on_start: called before the first batch with the trainer and the number of rows, None if that is not known.
        callbacks: called after every batch.
        on_record: called with every record of the metrics, as those of `daes.training.callbacks`.
        on_wait: called while a live stream has no rows.
        labels: where labels come from that are not in the rows; the data are then messages opened with the `key` by
            which labels are found.
        tables: `CategoricalEmbedding`, or a `DividedEmbedding`, of which each of several processes has a part of the
            rows. The checkpoints and the saved model are the same.

    Where `torch.distributed` has a group of several processes (`process_group` makes one of those that `torchrun` has
    started), all of them call this with the same arguments and train one model together: see `ProcessTrainer`. The
    first process writes and calls what is to be called; the folder must be visible to all.

    >>> import tempfile
    >>> data = Dataset.open("adstream:3000")
    >>> path = Path(tempfile.mkdtemp()) / "run"
    >>> run = train_run(data, path, model={"backbone": "fnn"}, config=TrainConfig(batch_size=500))
    >>> run.result.rows, run.folder.read("metrics")["rows"], CTRModel.from_pretrained(run.folder.model).dim
    (3000, 3000, 16)
    """
    config = config or TrainConfig()
    processes = Processes()
    device = find_device(device)
    run_folder = RunFolder(folder)
    with processes.together():
        if processes.count > 1 and (data.is_live or labels is not None):
            raise ValueError(f"live streams and labels that come later need one process, got {processes.count}")
        if processes.count == 1 and issubclass(tables, DividedEmbedding):
            raise ValueError("tables can be divided among several processes (torchrun starts them), got one process")
        if processes.first:
            run_folder.recover()
            _check_folder(run_folder, resume, overwrite)
    with processes.together():
        continued = run_folder.replacement if run_folder.replacement.exists else run_folder
        stored = continued.read_config(*_PARTS) if resume and continued.is_run else None
        # Whatever can be wrong with options and data shows here, before anything is written.
        map_above = MAP_ABOVE if issubclass(tables, DividedEmbedding) else None
        start = _find_parent(parent, stored, model, config, map_above)
        if start is None:
            arguments = {"categorical": tables, **(model or {})}
            make, sampled = _find_model(data, continued, stored, arguments, config, sample_rows)
        else:
            make, sampled = partial(start.make_model, data.schema, tables), 0
    with processes.together():  # what is read is there in all of them: TorchRec's tables are made together
        torch.manual_seed(config.seed)
        ctr_model = make()
        bad_rows = data.bad_rows
        consumed, monitor = ConsumedRows(data), Monitor(data.schema, ctr_model.distributions)
        join = None if labels is None else _join(labels, data, config, keep)
        recent = RecentRows(data.schema.num_numerical + data.schema.num_categorical, config.window)
        progress = ProgressFile(monitor)
        ctr_model.to(processes.device(device))
        watching: dict[str, Any] = {
            "callbacks": [consumed, monitor, recent, *callbacks],
            "on_record": [progress, *on_record],
            "on_wait": on_wait,
            "extra": {"consumed": consumed, "monitor": monitor, "recent": recent, "bad_rows": bad_rows},
        }
        if processes.count == 1:
            trainer = StreamTrainer(ctr_model, config, waiting=join, **watching)
        else:  # the first process alone watches and writes
            trainer = ProcessTrainer(ctr_model, config, processes, **(watching if processes.first else {}))
    description = {
        "data": data.describe(),
        "schema": json.loads(data.schema.to_json()),
        "model": ctr_model.config,
        "training": {**asdict(config), "learning_rate": config.rate},
        "run": {
            "sample_rows": sample_rows,
            "sampled": sampled,
            "device": device,
            "keep": keep,
            "prefetch": prefetch,
            "world_size": processes.count,
            **({} if labels is None else {"labels": asdict(labels)}),
        },
        "parent": None if start is None else start.description,
    }
    _check_same_start(processes, description, data, ctr_model)
    with ExitStack() as held:
        written = run_folder
        with processes.together():
            if processes.first:
                held.enter_context(run_folder.locked())
                written = _choose_folder(run_folder, resume, overwrite)
                trainer.store = held.enter_context(CheckpointStore(written.checkpoints, keep=keep, map_above=map_above))
                if join is not None and join.rows.segments is not None:
                    join.rows.segments.folder = written.pending
                if not written.is_run or (data.is_live and not trainer.store.steps()):
                    stored = {
                        "format": FORMAT,
                        "version": VERSION,
                        "created": datetime.now(UTC).isoformat(timespec="seconds"),
                        **description,
                        "parameters": count_parameters(ctr_model),
                        "options": dict(options or {}),
                        "environment": environment(device),
                    }
                    written.write("config", stored)
        written = RunFolder(processes.gather(written.path)[0])
        with processes.together():
            ahead = max(prefetch, _ROWS_AHEAD // config.batch_size) if prefetch and not data.is_live else prefetch
            source = read_together(data, processes, prefetch=ahead)
            checkpoint = (trainer.store or CheckpointStore(written.checkpoints, map_above=map_above)).load()
            _check_same_run(written, description, ("data", "schema"))
            place = None
            if checkpoint is not None:
                with checkpoint.in_use():
                    place = consumed.place(checkpoint.state, config)
            # Changed rows would also change the model: report the rows first.
            _check_same_run(written, description, ("model", "training", "run"))
            if checkpoint is not None and place is not None:
                if processes.first and (other := _other_versions(written)):
                    _log.warning("the run %s: its result may differ from that of a run without a break", other)
                with checkpoint.in_use():
                    trainer.load_state_dict(checkpoint.state)
                source.seek(place)
                checkpoint.state.clear()  # what was needed of it is in the trainer
            else:
                if start is not None:
                    start.load_into(trainer)
                if data.is_live:
                    source.seek({"row": 0})
        resumed_at = None if checkpoint is None else trainer.rows
        progress.folder = written if processes.first else None
        if on_start is not None and processes.first:
            on_start(trainer, data.num_rows)
        letters = _open_dead_letters(written, data, source, trainer, join)
        result, stopped = _train(trainer, source, live=data.is_live, begin=checkpoint is None)
        ctr_model.eval()
        page, divided, last_rows = None, isinstance(ctr_model.categorical, DividedEmbedding), recent.sample()
        # While the last checkpoint is being written; a divided table has its rows together only afterwards.
        importance = _importance(ctr_model, last_rows, config) if processes.first and not divided else None
        if trainer.store is not None:
            trainer.store.close()
        if processes.first:
            if trainer.store is not None and isinstance(ctr_model.categorical, DividedEmbedding):
                last = trainer.store.load()
                assert last is not None
                ctr_model.categorical = ctr_model.categorical.with_rows(
                    last.state["step"]["model"]["categorical.weight"]
                )
            with _safe_in(written):
                ctr_model.save_pretrained(written.model)
                write_results(written, trainer, result, monitor, bad_rows, processes.count, letters)
                importance = importance or _importance(ctr_model, last_rows, config)
                if importance is not None:
                    written.write("importance", importance.to_dict())
                progress.remove()
            if written.path != run_folder.path:
                run_folder.replace()
            page = report(run_folder.path) if report else None
    processes.gather(None)  # the folder is complete when any of them returns
    return TrainedRun(run_folder, ctr_model, result, resumed_at, page, bad_rows, stopped)


def _find_model(
    data: Dataset,
    continued: RunFolder,
    stored: Mapping[str, Any] | None,
    model: Mapping[str, Any],
    config: TrainConfig,
    sample_rows: int,
) -> tuple[Callable[[], CTRModel], int]:
    """A function that makes a new model, and the number of rows it is based on."""
    if stored is not None and data.is_live and CheckpointStore(continued.checkpoints).steps():
        # The first rows may be gone; what was derived from them is in the checkpoint and in the run's configuration.
        arguments, chosen = dict(model), stored["model"]
        sizes = arguments.get("sizes", {})
        arguments["sizes"] = {**chosen["sizes"], **sizes} if isinstance(sizes, Mapping) else sizes
        if arguments.get("context", "smallest") in ("smallest", "ranked"):
            arguments["context"] = chosen["context"]
        return partial(CTRModel, data.schema, **arguments), stored["run"]["sampled"]
    sampled = sample_rows if stored is None else stored["run"].get("sampled", sample_rows)
    sample = data.sample(sampled, batch_size=config.batch_size, skip_bad_batches=config.bad_batch == "skip")
    return partial(CTRModel.from_sample, data.schema, sample, **model), len(sample)


def _join(labels: LateLabels, data: Dataset, config: TrainConfig, keep: int) -> LabelJoin:
    """The queue in which rows wait for labels of another topic."""
    if not isinstance(data.source, MessageSource) or data.source.key != labels.key:
        raise ValueError(f"labels are joined to messages opened with key={labels.key!r}, got {data.name}")
    if config.label_delay:
        raise ValueError(f"label_delay is for labels that come with their rows, got {config.label_delay} and labels")
    reader = LabelReader(connect(labels.topic), labels.key, data.schema.label)
    return LabelJoin(reader, labels, config.batch_size, Segments("pending", keep))


def _open_dead_letters(
    run_folder: RunFolder, data: Dataset, source: Source, trainer: StreamTrainer, join: LabelJoin | None
) -> DeadLetters | None:
    """Write messages that cannot be read to a file of the run; None if the data are not messages."""
    messages = data.source
    if not isinstance(messages, MessageSource):
        return None
    letters = DeadLetters(run_folder.dead_letters)
    positions = {messages.consumer.name: parse_offsets(str(source.position()["offsets"]))[0]}
    if join is not None:
        positions[join.labels.name] = join.labels.offsets()
        join.labels.on_dead_letter = letters.add
    letters.open(positions)
    messages.on_dead_letter = letters.add
    trainer.extra["dead_letters"] = letters
    return letters


def _train(trainer: StreamTrainer, source: Source, *, live: bool, begin: bool) -> tuple[TrainResult, str | None]:
    """The result, and what ended a run on a live stream, which ends by a signal as others do by their last row.

    The last checkpoint may still be written.
    """
    with on_stop_signal(trainer.stop):
        try:
            return trainer.run(source, resume=False, save_first=live and begin, wait=False), None
        except TrainingStopped as stopped:
            if not live:
                raise
            return trainer.result(), str(stopped)


def _importance(model: CTRModel, rows: Batch | None, config: TrainConfig) -> Importance | None:
    return None if rows is None else feature_importance(model, rows, seed=config.seed)


def _check_same_start(processes: Processes, description: Mapping[str, Any], data: Dataset, model: CTRModel) -> None:
    """An error unless all processes have the same options, files of the same sizes, and the same initial model."""
    if processes.count == 1:
        return
    read = {name: value for name, value in description["data"].items() if name != "what"}
    sizes = [size for _, size, _ in data.stamps() or []]
    kind = {"torch": torch.__version__, "compiled loops": native.serves()}  # other ones round differently
    processes.compare(
        {**description, "data": {**read, "bytes of the files": sizes}, **kind, "initial model": model_checksum(model)}
    )


@contextmanager
def _safe_in(run_folder: RunFolder) -> Iterator[None]:
    """A context in which a file that cannot be written is an error that names where the trained model is."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"{error.filename or run_folder.path} could not be written: {error.strerror or error}; training is done "
            f"and the model is safe in {run_folder.checkpoints}, from where resuming the run writes the rest"
        ) from error


def write_results(
    run_folder: RunFolder,
    trainer: StreamTrainer,
    result: TrainResult,
    monitor: Monitor,
    bad_rows: BadRows,
    world_size: int = 1,
    letters: DeadLetters | None = None,
) -> None:
    """Write metrics.json, history.json, monitor.json and, if rows were left out, bad_rows.csv."""
    run_folder.write(
        "metrics",
        {
            "rows": result.rows,
            "seconds": result.seconds,
            "rows_per_second": result.rows_per_second,
            "world_size": world_size,
            "metrics": result.metrics,
            "undefined": trainer.metrics.undefined(),
            "bad_batches": [asdict(bad) for bad in result.bad_batches],
            "bad_rows": {"count": bad_rows.count, "first": [asdict(bad) for bad in bad_rows.first[:_LISTED_BAD_ROWS]]},
            "dead_letters": 0 if letters is None else letters.count,
            **({"labels": trainer.waiting.describe()} if isinstance(trainer.waiting, LabelJoin) else {}),
            "reliability": reliability_of(trainer),
        },
    )
    run_folder.write("history", history_by_name(result.history))
    run_folder.write("monitor", monitor.to_dict())
    if bad_rows.count:
        write_text(run_folder.bad_rows, bad_rows.to_csv())


def _check_folder(run_folder: RunFolder, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise ValueError("resume and overwrite exclude each other, got both")
    if not run_folder.exists:
        return
    if not run_folder.is_run:
        stays = "not overwritten" if overwrite else "left alone"
        raise RunExistsError(f"{run_folder.path} holds something other than a run and is {stays}")
    if resume or overwrite:
        return
    if run_folder.replacement.exists:
        raise RunExistsError(
            f"{run_folder.path} holds a run and an unfinished one that was to replace it: --resume (resume=True) "
            "continues the unfinished run, --overwrite (overwrite=True) starts it again"
        )
    raise RunExistsError(
        f"{run_folder.path} exists already: --resume (resume=True) continues the run in it, --overwrite "
        "(overwrite=True) replaces it"
    )


def _choose_folder(run_folder: RunFolder, resume: bool, overwrite: bool) -> RunFolder:
    """Where to write, once the lock is held: the folder itself, or its replacement."""
    _check_folder(run_folder, resume, overwrite)
    if not run_folder.exists or (resume and not run_folder.replacement.exists):
        return run_folder
    if overwrite:
        run_folder.clear_replacement()
    return run_folder.replacement


def _find_parent(
    parent: str | Path | None,
    stored: Mapping[str, Any] | None,
    model: Mapping[str, Any] | None,
    config: TrainConfig,
    map_above: int | None,
) -> ParentRun | None:
    """The run to start from: the one that is given, or that of the run that is continued."""
    if stored is None:
        found = None if parent is None else ParentRun.open(parent, config.optimizer, map_above)
    else:
        found = ParentRun.of(stored, map_above)
        recorded = None if found is None else found.description["run"]
        if parent is not None and str(Path(parent).absolute()) != recorded:
            raise ValueError(f"the run was started from {recorded} and cannot be resumed from {parent}")
    if found is not None and model:
        raise ValueError(f"the model is the parent's, and no arguments of it can be given, got {', '.join(model)}")
    return found


def _check_same_run(run_folder: RunFolder, description: Mapping[str, Any], parts: Sequence[str]) -> None:
    """A run is resumed as it was configured, except for options that do not change the result."""
    stored, given = run_folder.read_config(*_PARTS), strict(description)
    for part in parts:
        free = _CHANGEABLE.get(part, ())
        for name in dict.fromkeys([*stored[part], *given[part]]):
            old, new = stored[part].get(name), given[part].get(name)
            if name not in free and old != new:
                name, old, new = _difference(name, old, new)
                raise ValueError(
                    f"{run_folder.path} was started with {part}.{name}={old!r} and cannot be resumed with {new!r}: "
                    "start a new run, or keep the old value"
                )


def _other_versions(run_folder: RunFolder) -> str:
    """A sentence about versions that have changed since the run was started; empty if none has."""
    stored, now = run_folder.read_config().get("environment", {}), environment()
    before = {"daes": stored.get("daes"), "torch": stored.get("packages", {}).get("torch")}
    after = {"daes": now["daes"], "torch": now["packages"]["torch"]}
    changed = [name for name in before if before[name] not in (None, after[name])]
    if not changed:
        return ""
    return (
        f"was started with {' and '.join(f'{name} {before[name]}' for name in changed)}, "
        f"and here is {' and '.join(f'{name} {after[name]}' for name in changed)}"
    )


def _difference(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """The dotted name of the first option that differs, and its two values."""
    while isinstance(old, Mapping) and isinstance(new, Mapping):
        key = next(key for key in (*old, *new) if old.get(key) != new.get(key))
        name, old, new = f"{name}.{key}", old.get(key), new.get(key)
    return name, old, new
