"""`daes train`: one model, one pass over a stream."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from daes.cli import console
from daes.cli.console import err, errors, note, print_json, say
from daes.cli.errors import INTERRUPTED
from daes.cli.evaluate import print_metrics
from daes.cli.groups import flag, grouped, restored, was_given
from daes.cli.live import Live, joined_schema
from daes.cli.options import ARGUMENTS, Json, Kind, number, one_of, option, option_field, registered_name, whole_number
from daes.cli.reading import DATA_HELP, STDIN, Columns, Reading
from daes.cli.settings import ModelOptions, TrainingOptions
from daes.cli.toml_file import Config
from daes.training.callbacks import CALLBACKS, make_callback

if TYPE_CHECKING:
    from daes.embedding import CategoricalEmbedding
    from daes.training.run import TrainedRun

_model = partial(option_field, panel="Model")
_run = partial(option, panel="Run")
_kept = partial(option_field, panel="Run")


def tracker(text: str) -> str:
    """Check NAME[:WHERE] and return it unchanged."""
    one_of(*CALLBACKS).parse(text.partition(":")[0])
    return text


@dataclass(frozen=True)
class ModelChoice:
    """The method, the backbone and the seed."""

    method: str = _model("How numbers become vectors: {method}.", default="daes", of=registered_name("method"))
    backbone: str = _model("How vectors interact: {backbone}.", default="deepfm", of=registered_name("backbone"))
    seed: int = option_field("Seed of the random numbers.", default=0, of=whole_number(0))


@dataclass(frozen=True)
class Kept:
    """What is written while the run trains, and when; none of it changes the result."""

    checkpoint_every: int = _kept("Rows between two checkpoints.", of=whole_number(1, "ROWS"), default=1_000_000)
    checkpoint_minutes: float = _kept(
        "Maximum time between two checkpoints.", of=number(above=0, metavar="MINUTES"), default=5.0
    )
    keep: int = _kept("Number of checkpoints to keep.", of=whole_number(1), default=3)
    report: bool = _kept("Write report.html.", default=True)
    track: list[str] | None = _kept(
        "Also send the metrics, as they are recorded, to tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT; "
        "may be repeated.",
        of=Kind(tracker, "NAME[:WHERE]"),
    )


def _check_data(call: typer.Context, data: str | None) -> str | None:
    if data is None and not call.params.get("resume") and not call.resilient_parsing:
        raise typer.BadParameter("the data to train on are needed, unless --resume continues a run")
    return data


@grouped
def train(
    call: typer.Context,
    out: Path = _run("The folder for model, metrics, report, …", "--out", "-o", metavar="RUN", default=...),
    data: str | None = typer.Argument(
        None, metavar="DATA", callback=_check_data, help=DATA_HELP + " Optional with --resume."
    ),
    resume: bool = _run(
        "Continue the run in RUN where it stopped, with the same bits on a CPU; start one if there is none.",
        "--resume",
        default=False,
    ),
    overwrite: bool = _run("Replace the run in RUN once the new one is complete.", "--overwrite", default=False),
    from_run: Path | None = _run(
        "Start from the model, the optimiser and the statistics of a finished run; training options that are "
        "not given are that run's.",
        "--from",
        metavar="RUN",
    ),
    process_timeout: float = _run(
        "With several processes (torchrun): end the run if one does not answer for this long.",
        of=number(above=0, metavar="SECONDS"),
        default=600.0,
    ),
    divide_tables: str = _run(
        "With several processes (torchrun): each process holds only a part of the rows of the categories' tables; "
        "torch alone or torchrec looks them up.",
        of=one_of("no", "torch", "torchrec", metavar="BY"),
        default="no",
    ),
    ray: bool = _run("Train in --workers processes of a Ray cluster, which replaces lost ones.", default=False),
    workers: int = _run("Number of workers, with --ray.", of=whole_number(1), default=2),
    config: Config = None,
    json: Json = False,
    *,
    choice: ModelChoice,
    columns: Columns,
    reading: Reading,
    model: ModelOptions,
    training: TrainingOptions,
    live: Live,
    kept: Kept,
) -> None:
    """Train a model in one pass over a stream; every row is scored before the model learns from it.

    Columns that are not named are inferred: numbers are numerical, text is categorical, a column called label, click,
    clicked, target or y is the label. The scores are judged by AUC, LogLoss and calibration, over the stream and over a
    window. RUN then holds the model, the metrics, the full configuration and report.html.

    On a stream without an end (a topic, or a folder with --follow) training continues until Ctrl-C or SIGTERM; then
    model and metrics are written.

    A run may be killed at any time. `daes train --out RUN --resume` continues from the last checkpoint with the same
    result as an uninterrupted run, unless the rows came from standard input. Ctrl-C and SIGTERM write a checkpoint
    first.

    Examples:

        daes train flights --out run
        daes train clicks.parquet --label click --numerical price,age --categorical city,device --out run
        daes train 'logs/*.csv.gz' --method ple --backbone dcnv2 --batch-size 1024 --seed 1 --out run
        daes train --config run.toml --out run --overwrite
        daes train --out run --resume
        daes train tomorrow.parquet --from run --out next
        daes train incoming/ --follow --out run
        torchrun --nproc-per-node 4 -m daes train clicks.parquet --out run
        torchrun --nproc-per-node 4 -m daes train clicks.parquet --divide-tables torch --out run
        daes train clicks.parquet --ray --workers 4 --out run
        daes train nats://localhost:4222/ADS --out run
        daes train kafka://localhost:9092/impressions --label click --out run
    """
    problems = [] if resume else list(live.problems())
    if resume and overwrite:
        problems.append("--resume and --overwrite exclude each other, got both")
    if was_given(call, "workers") and not was_given(call, "ray"):
        problems.append(
            f"--workers needs --ray; without it, {workers} processes of this machine are started by torchrun "
            f"--nproc-per-node {workers} -m daes train …"
        )
    if ray and data == STDIN:
        problems.append("--ray needs files that all workers can open, got standard input")
    if live.follow and data == STDIN:
        problems.append("--follow needs a folder or a glob, got standard input")
    if problems:
        raise ValueError("; ".join(problems))
    from daes.cli.columns_text import print_columns
    from daes.cli.progress import TrainingProgress, row_progress
    from daes.cli.ray_train import train_with_ray
    from daes.report.page import write_report
    from daes.storage.run_folder import RunFolder
    from daes.stream.broker_url import is_broker
    from daes.stream.opening import absolute
    from daes.training.parent import read_schema
    from daes.training.processes import process_group
    from daes.training.run import train_run

    if ray:
        train_with_ray(call.meta[ARGUMENTS], out, workers, use_gpu=training.device.startswith("cuda"))
        return
    processes = call.with_resource(process_group(process_timeout))
    err.quiet = err.quiet or not processes.first
    run_folder = RunFolder(out)
    with processes.together():
        if processes.count > 1 and data == STDIN:
            raise ValueError(
                f"standard input can be read by one process only, and {processes.count} were started: name a file that "
                "all of them can open"
            )
        if processes.first:
            run_folder.recover()
    with processes.together():
        if resume and run_folder.replacement.exists:
            note(f"continuing the unfinished run that replaces the one in {out}")
            run_folder = run_folder.replacement
        stdin_advice = (
            "standard input cannot be read again. To continue training with the rows of a file: daes train FILE "
            f"--from {quote(str(out))} --out OTHER"
        )
        resumes = resume and run_folder.is_run
        previous = run_folder if resumes else None if from_run is None else RunFolder(from_run)
        stored = {} if previous is None else previous.read_config("options", "schema")
        trained = {} if previous is None else previous.data_options()
        before = stored.get("options", {})
        if resumes:
            if STDIN in (data, before.get("data")):
                raise ValueError(f"{out} cannot be resumed: {stdin_advice}")
            data, from_run = data or before.get("data"), from_run or before.get("from_run")
            reading, live = restored(call, reading, before), restored(call, live, before)
            kept = restored(call, kept, before)
        if resume and (problems := list(live.problems())):  # of all options, given or restored
            raise ValueError("; ".join(problems))
        if from_run is not None:
            _refuse_given(call, (choice, columns, model), from_run)
        if stored:
            choice, columns = restored(call, choice, before), restored(call, columns, before)
            model, training = restored(call, model, before), restored(call, training, before)
            if not was_given(call, "divide_tables"):  # one process has whole tables, whatever the run had before
                divide_tables = before.get("divide_tables", "no") if processes.count > 1 else "no"
        if data is None:
            raise ValueError(f"DATA is needed: there is no run in {out} to continue")
        if previous is None:
            model.check_method(choice.method)
        late_labels = live.late_labels
        continues_live = resumes and (live.follow or is_broker(data))
        tables = _tables(divide_tables, processes.count)
        if continues_live:
            _refuse_changed((choice, columns, model), before, run_folder.path)
        if from_run is not None or continues_live:
            # The first rows of a live stream may be gone: the run knows their columns.
            opened = reading.open(data, schema=read_schema(stored), trained=trained, live=True, **live.options())
        else:
            joins = late_labels is not None
            # The rows need not have a column with the name of a label that comes in other messages.
            of_rows = replace(columns, label=None) if joins and columns.schema is None else columns
            opened = of_rows.open(data, reading, needs_label=not joins, live=True, **live.options())
            if late_labels is not None:
                opened = opened.with_schema(joined_schema(opened.schema, late_labels.key, columns.label))
        found, order = opened.in_time_order()
        training = training.resolved(found)
    if found.is_live and not stored:
        first = min(model.sample_rows, found.limit or model.sample_rows)
        note(f"training starts once {first:,} rows have arrived: they determine the table sizes (--sample-rows)")
    arguments = {"embedding": choice.method, "backbone": choice.backbone, **model.arguments()}
    groups: tuple[Any, ...] = (choice, columns, reading, model, training, live, kept)
    resume_advice = f"to continue: daes train --out {quote(str(out))} --resume"
    try:
        with row_progress("training") as bar:
            introduce = None if from_run is not None else partial(print_columns, opened, columns.named, order)
            progress = TrainingProgress(bar, found, introduce)
            run = train_run(
                found,
                out,
                model=None if from_run is not None else arguments,
                config=training.config(
                    seed=choice.seed,
                    checkpoint_every=kept.checkpoint_every,
                    checkpoint_minutes=kept.checkpoint_minutes,
                ),
                sample_rows=model.sample_rows,
                device=training.device,
                keep=kept.keep,
                resume=resume,
                overwrite=overwrite,
                parent=from_run,
                report=write_report if kept.report else None,
                options={
                    "data": absolute(data),
                    "from_run": None if from_run is None else str(Path(from_run).absolute()),
                    "divide_tables": divide_tables,
                }
                | {k: v for group in groups for k, v in asdict(group).items()},
                on_start=progress.start,
                callbacks=[progress],
                on_wait=[progress.wait],
                labels=late_labels,
                tables=tables,
                on_record=[make_callback(name) for name in kept.track or () if processes.first],
            )
    except KeyboardInterrupt as interruption:
        if processes.first:
            if str(interruption):
                errors.print(f"daes: {interruption}", soft_wrap=True)
            errors.print(stdin_advice if data == STDIN else resume_advice, soft_wrap=True)
        raise typer.Exit(getattr(interruption, "exit_code", INTERRUPTED)) from None
    except OSError as error:
        # A file of the run, such as the report, that --resume writes again.
        of_run = error.filename is not None and Path(error.filename).is_relative_to(out) and RunFolder(out).is_run
        if not of_run or data == STDIN:
            raise
        raise OSError(error.errno, f"{error.strerror}; {resume_advice}", str(error.filename)) from error
    if run.stopped is not None:
        note(f"{run.stopped}; {resume_advice}")
    if processes.first:
        _print(run, json)


def _tables(divided: str, count: int) -> "type[CategoricalEmbedding]":
    """The class of the categories' tables for `count` processes, from the value of --divide-tables."""
    from daes.embedding import CategoricalEmbedding, DividedEmbedding
    from daes.extras import require

    if divided == "no":
        return CategoricalEmbedding
    if count == 1:
        raise ValueError(
            f"--divide-tables needs several processes, started by torchrun or --ray, got {divided} and one process"
        )
    if divided == "torch":
        return DividedEmbedding
    require("torchrec")
    from daes.engines.torchrec import TorchRecEmbedding

    return TorchRecEmbedding


def _refuse_given(call: typer.Context, groups: Sequence[Any], parent: Path) -> None:
    """Raise an error for an option that the parent run has decided; a new seed is allowed, since dropout uses it."""
    for name in (field.name for group in groups for field in fields(group)):
        if name != "seed" and was_given(call, name):
            raise typer.BadParameter(
                f"{flag(name)} must not be given with --from: columns and model are those of {parent}"
            )


def _refuse_changed(groups: Sequence[Any], stored: dict[str, Any], run: Path) -> None:
    """Raise an error if an option differs from that of the run that is continued."""
    for name, new in ((name, value) for group in groups for name, value in asdict(group).items()):
        old = stored.get(name, new)
        if dumps(old) != dumps(new):  # as JSON, where a tuple is a list
            raise ValueError(
                f"{run} was started with {flag(name)}={old} and cannot be resumed with {new}: start a new run, or keep "
                "the old value"
            )


def _print(run: "TrainedRun", json: bool) -> None:
    from daes.training.config import suggest_more_steps

    result = run.result
    size, steps = run.folder.read("config")["training"]["batch_size"], result.batches
    smaller = suggest_more_steps(result.rows, steps, size)
    if result.bad_batches:
        note(f"{len(result.bad_batches):,} of {steps:,} batches were not learned from; metrics.json lists them")
    if run.bad_rows.count:
        note(f"{run.bad_rows}; {run.folder.bad_rows} lists them")
    if run.stopped is None and smaller is not None:
        more = -(-result.rows // smaller)
        note(f"{steps:,} steps are few to learn from: --batch-size {smaller} makes {more:,} of them")
    if json:
        content = {
            "run": str(run.folder.path),
            "report": None if run.report is None else str(run.report),
            "resumed_at": run.resumed_at,
            **run.folder.read("metrics"),
        }
        print_json(content)
        return
    most = "up to " if result.rows <= (steps - 1) * size else ""
    console.out.print(
        f"{result.rows:,} rows in {steps:,} steps of {most}{size:,} rows, {result.seconds:.1f} s, "
        f"{result.rows_per_second:,.0f} rows/s"
    )
    print_metrics(result.metrics, run.folder.read("metrics")["undefined"])
    say(f"wrote {run.folder.path}" + (f", report: {run.report}" if run.report else ""))
