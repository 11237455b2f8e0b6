"""A training run in a folder: read, train, monitor, save, and continue after an interruption."""

import json
import logging
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from daes.embedding import CategoricalEmbedding, DividedEmbedding
from daes.model import CTRModel
from daes.storage.checkpoint import Checkpoint, CheckpointStore
from daes.storage.run_folder import FORMAT, VERSION, RunFolder, strict
from daes.storage.segments import Segments
from daes.stream.bad_rows import BadRows
from daes.stream.broker_url import connect
from daes.stream.dataset import Dataset
from daes.stream.messages import LabelReader, MessageSource
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.consumed import ConsumedRows
from daes.training.environment import environment, find_device
from daes.training.label_join import LabelJoin, LateLabels
from daes.training.optimizer import count_parameters
from daes.training.parent import ParentRun
from daes.training.processes.group import Processes
from daes.training.processes.reading import read_together
from daes.training.processes.tables import MAP_ABOVE
from daes.training.processes.trainer import ProcessTrainer
from daes.training.results import RunResults
from daes.training.same_run import PARTS, check_same_run, check_same_start, other_versions
from daes.training.stopping import TrainingStopped, on_stop_signal
from daes.training.trainer import BatchCallback, RecordCallback, StreamTrainer, TrainResult, WaitCallback

_log = logging.getLogger("daes.training")

_ROWS_AHEAD = 4096
"""Rows to read ahead if batches are small: every switch between the threads has a cost."""
_SECONDS_TO_SEE = 10.0
"""How long a process waits for the run folder that the first process has written."""


class RunExistsError(ValueError):
    """The folder of a new run already exists."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Args:
        folder: its files.
        model: the trained model, in eval mode. Divided tables are put together in the first process only.
        result: metrics, history and bad batches.
        resumed_at: the row at which it was resumed; None if it started from the beginning.
        report: the HTML report, None if none was written.
        bad_rows: the rows that were left out.
        stopped: for a run on a live stream that was ended by a signal, a sentence about that; None otherwise.
    """

    folder: RunFolder
    model: CTRModel
    result: TrainResult
    resumed_at: int | None
    report: Path | None
    bad_rows: BadRows
    stopped: str | None


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
    A run on a live stream (`Dataset.is_live`) has no other end: a signal makes it write its model and its metrics.

    Args:
        data: the rows.
        folder: where to write. It must be empty or not exist, unless `resume` or `overwrite` is given. It is locked
            before anything is written until the end of the run: a second trainer in it is an error.
        model: arguments of `CTRModel.from_sample`, as `{"embedding": "daes", "backbone": "deepfm"}`.
        config: how to train; its seed is also that of the initial weights.
        sample_rows: number of first rows that determine table sizes and context fields and fit offline methods.
        device: "cpu", "cuda", "cuda:1", … or "auto" for a CUDA device if there is one.
        keep: number of checkpoints to keep.
        prefetch: number of batches that a thread reads ahead, more if they are small; 0 for none.
        resume: continue the run in the folder from its newest checkpoint, with the same bits as without the
            interruption. Everything that determines the result must be unchanged. The data may have grown at the end,
            by rows or by files; if the rows read so far have changed, that is an error. Starts a new run if there is
            none.
        overwrite: replace the run in the folder. The old run stays until the new one, in the subfolder `replacement`,
            is complete; `resume` continues an interrupted replacement. A folder without a run is an error.
        parent: a run to start from: its model with distributions, vocabularies and evidence, and its optimisers, as of
            its newest checkpoint. The columns are the parent's, and `model` must not be given.
        report: writes a page about the finished folder, as `daes.report.page.write_report` does.
        options: the user's own options, stored in config.json.
        on_start: called before the first batch with the trainer and the number of rows, None if that is unknown.
        callbacks: called after every batch.
        on_record: called with every record of the metrics, as those of `daes.training.callbacks`.
        on_wait: called while a live stream has no rows.
        labels: another topic that labels come from; the data are then messages opened with the `key` that joins both.
        tables: `CategoricalEmbedding`, or `DividedEmbedding` to divide the rows of the tables among several processes.
            Checkpoints and the saved model are the same.

    If `torch.distributed` has a group of several processes (`process_group` makes one of those that `torchrun`
    started), all of them call this with the same arguments and train one model together: see `ProcessTrainer`. Only the
    first process writes files and calls callbacks; all processes must be able to read the folder.

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
    divided = issubclass(tables, DividedEmbedding)
    map_above = MAP_ABOVE if divided else None
    # Whatever is wrong with options and data is found here, before anything is written.
    with processes.together():
        if processes.count > 1 and (data.is_live or labels is not None):
            raise ValueError(f"live streams and labels that come later need one process, got {processes.count}")
        if processes.count == 1 and divided:
            raise ValueError("tables can be divided among several processes (torchrun starts them), got one process")
        if processes.first:
            run_folder.recover()
            _check_folder(run_folder, resume, overwrite)
    with processes.together():
        continued = run_folder.replacement if run_folder.replacement.exists else run_folder
        stored = continued.read_config(*PARTS) if resume and continued.is_run else None
        start = _find_parent(parent, stored, model, config, map_above)
        if start is None:
            arguments = {"categorical": tables, **(model or {})}
            make, sampled = _find_model(data, continued, stored, arguments, config, sample_rows)
        else:
            make, sampled = partial(start.make_model, data.schema, tables), 0
    with processes.together():  # once all have read the sample: TorchRec makes tables in all processes at once
        torch.manual_seed(config.seed)
        ctr_model = make().to(processes.device(device))
        consumed, results = ConsumedRows(data), RunResults(data, ctr_model, config.window)
        monitor, recent, bad_rows = results.monitor, results.recent, results.bad_rows
        join = None if labels is None else _join(labels, data, config)
        watching: dict[str, Any] = {
            "callbacks": [consumed, monitor, recent, *callbacks],
            "on_record": [results.write_progress, *on_record],
            "on_wait": on_wait,
            "extra": {"consumed": consumed, "monitor": monitor, "recent": recent, "bad_rows": bad_rows},
        }
        if processes.count == 1:
            trainer = StreamTrainer(ctr_model, config, waiting=join, **watching)
        else:
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
    check_same_start(processes, description, data, ctr_model)
    description = processes.gather(description)[0]  # that which is written
    with ExitStack() as resources:
        written = run_folder
        with processes.together():
            if processes.first:
                resources.enter_context(run_folder.locked())
                written = _choose_folder(run_folder, resume, overwrite)
                trainer.store = resources.enter_context(
                    CheckpointStore(written.checkpoints, keep=keep, map_above=map_above)
                )
                results.folder = written
                if join is not None and labels is not None and labels.overflow == "spill":
                    join.rows.segments = Segments(written.pending, trainer.store)
                if not written.is_run or (data.is_live and not trainer.store.steps()):
                    _write_config(written, description, ctr_model, device, options)
        written = RunFolder(processes.gather(written.path)[0])
        with processes.together():
            _wait_for_folder(written, processes)
            ahead = max(prefetch, _ROWS_AHEAD // config.batch_size) if prefetch and not data.is_live else prefetch
            source = read_together(data, processes, prefetch=ahead)
            checkpoint = (trainer.store or CheckpointStore(written.checkpoints, map_above=map_above)).load()
            if checkpoint is not None:
                _restore(trainer, source, checkpoint, consumed, written, description, warn=processes.first)
                _check_limit(data, trainer.rows)
            else:
                check_same_run(written, description)
                if start is not None:
                    start.load_into(trainer)
                if data.is_live:
                    source.seek({"row": 0})
            if processes.first:
                _update_config(written, description, options)
        resumed_at = None if checkpoint is None else trainer.rows
        if on_start is not None and processes.first:
            on_start(trainer, data.num_rows)
        results.open_dead_letters(source, trainer)
        result, stopped = _train(trainer, source, live=data.is_live, begin=checkpoint is None)
        ctr_model.eval()
        page = None
        with processes.together():  # the folder is complete when any of them returns
            if processes.first:
                results.write(trainer, result, processes.count)
                if written.path != run_folder.path:
                    run_folder.replace()
                page = report(run_folder.path) if report else None
    return TrainedRun(run_folder, ctr_model, result, resumed_at, page, bad_rows, stopped)


def _find_model(
    data: Dataset,
    continued: RunFolder,
    stored: Mapping[str, Any] | None,
    model: Mapping[str, Any],
    config: TrainConfig,
    sample_rows: int,
) -> tuple[Callable[[], CTRModel], int]:
    """A function that makes a new model, and the number of rows in the sample it is based on."""
    if stored is not None and data.is_live and CheckpointStore(continued.checkpoints).steps():
        # The first rows may be gone; what was derived from them is in the checkpoint and in config.json.
        arguments, chosen = dict(model), stored["model"]
        sizes = arguments.get("sizes", {})
        arguments["sizes"] = {**chosen["sizes"], **sizes} if isinstance(sizes, Mapping) else sizes
        if arguments.get("context", "smallest") in ("smallest", "ranked"):
            arguments["context"] = chosen["context"]
        return partial(CTRModel, data.schema, **arguments), stored["run"]["sampled"]
    sampled = sample_rows if stored is None else stored["run"].get("sampled", sample_rows)
    if stored is not None:
        _check_limit(data, stored["run"].get("sampled", 0))
    sample = data.sample(sampled, batch_size=config.batch_size, skip_bad_batches=config.bad_batch == "skip")
    return partial(CTRModel.from_sample, data.schema, sample, **model), len(sample)


def _join(labels: LateLabels, data: Dataset, config: TrainConfig) -> LabelJoin:
    """The queue in which rows wait for the labels of another topic."""
    if not isinstance(data.source, MessageSource) or data.source.key != labels.key:
        raise ValueError(f"labels are joined to messages opened with key={labels.key!r}, got {data.name}")
    if config.label_delay:
        raise ValueError(f"label_delay is for labels that come with their rows, got {config.label_delay} and labels")
    if label_map := data.options.get("label_map"):
        raise ValueError(f"label_map is for labels that come with their rows, got {label_map} and labels")
    reader = LabelReader(connect(labels.topic), labels.key, data.schema.label)
    return LabelJoin(reader, labels, config.batch_size)


def _check_limit(data: Dataset, rows: int) -> None:
    """Raise if a run is resumed with fewer rows than it has read."""
    if data.limit is not None and data.limit < rows:
        raise ValueError(f"limit must be at least the {rows:,} rows that the run has read, got {data.limit:,}")


def _write_config(
    written: RunFolder, description: Mapping[str, Any], model: CTRModel, device: str, options: Mapping[str, Any] | None
) -> None:
    """Write config.json, with which a run begins."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **description,
        "parameters": count_parameters(model),
        "options": dict(options or {}),
        "environment": environment(device),
    }
    written.write("config", content)


def _update_config(written: RunFolder, description: Mapping[str, Any], options: Mapping[str, Any] | None) -> None:
    """Write what may change when a run is resumed to config.json, which the next `--resume` goes by."""
    stored = written.read_config(*PARTS)
    given = {name: description[name] for name in ("data", "training", "run")}
    given["run"] = {**given["run"], "world_size": stored["run"].get("world_size", 1)}  # that of the start
    changed = {**stored, **strict(given), **({} if options is None else {"options": strict(options)})}
    if changed != stored:
        written.write("config", changed)


def _restore(
    trainer: StreamTrainer,
    source: Source,
    checkpoint: Checkpoint,
    consumed: ConsumedRows,
    written: RunFolder,
    description: Mapping[str, Any],
    *,
    warn: bool,
) -> None:
    """Continue from a checkpoint; an error if the configuration, or the rows that were read before it, have changed."""
    moved = consumed.comparable
    check_same_run(written, description, ("data", "schema"), moved=moved)
    with checkpoint.in_use():
        position = consumed.place(checkpoint.state, trainer.config)
    # Changed rows would also change the model: report the rows first.
    check_same_run(written, description, moved=moved)
    if warn and (other := other_versions(written)):
        _log.warning("the run %s: its result may differ from that of an uninterrupted run", other)
    with checkpoint.in_use():
        trainer.load_state_dict(checkpoint.state)
    source.seek(position)
    checkpoint.state.clear()  # the trainer has what it needs


def _train(trainer: StreamTrainer, source: Source, *, live: bool, begin: bool) -> tuple[TrainResult, str | None]:
    """Train to the end of the stream; returns the result and, if a signal ended a live stream, a sentence about it.

    The last checkpoint may still be being written on return.
    """
    with on_stop_signal(trainer.stop):
        try:
            return trainer.run(source, resume=False, save_first=live and begin, wait=False), None
        except TrainingStopped as stopped:
            if not live:
                raise
            return trainer.result(), str(stopped)


def _wait_for_folder(run_folder: RunFolder, processes: Processes) -> None:
    """Wait until this process sees what the first one has written, which takes a network file system seconds."""
    give_up = time.monotonic() + _SECONDS_TO_SEE
    while not run_folder.is_run:
        if time.monotonic() > give_up:
            raise ValueError(
                f"process {processes.rank} on {platform.node()} does not see the run that process 0 has written to "
                f"{run_folder.path}: the machines need a file system that they share"
            )
        time.sleep(0.1)


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
    """The folder to write to, once the lock is held: the run's own or its replacement."""
    _check_folder(run_folder, resume, overwrite)
    if not run_folder.exists or (resume and not run_folder.replacement.exists):
        return run_folder
    if overwrite and run_folder.replacement.path.is_dir():
        shutil.rmtree(run_folder.replacement.path)
    return run_folder.replacement


def _find_parent(
    parent: str | Path | None,
    stored: Mapping[str, Any] | None,
    model: Mapping[str, Any] | None,
    config: TrainConfig,
    map_above: int | None,
) -> ParentRun | None:
    """The run to start from: the given one, or the parent of the run that is continued."""
    if stored is None:
        found = None if parent is None else ParentRun.open(parent, config.optimizer, map_above)
    else:
        found = ParentRun.of(stored, map_above)
        recorded = None if found is None else found.description["run"]
        if parent is not None and str(Path(parent).absolute()) != recorded:
            began = "without another run" if recorded is None else f"from {recorded}"
            raise ValueError(f"the run was started {began} and cannot be resumed from {parent}")
    if found is not None and model:
        raise ValueError(f"the model is the parent's and takes no arguments, got {', '.join(model)}")
    return found
