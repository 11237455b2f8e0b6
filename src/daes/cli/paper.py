"""`daes paper`: each table and figure of the paper, by name."""

import os
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from daes.cli.console import note, out, print_json, say
from daes.cli.groups import flag, grouped, was_given
from daes.cli.options import DEVICE, NAMES, Json, Names, one_of, option, option_field, whole_number
from daes.cli.settings import given_options, protocol_field
from daes.training.environment import find_device

if TYPE_CHECKING:
    from daes.paper.experiment import Execution, ExperimentSettings

OUT_OF_TIME = 3
"""The exit code if the time limit was reached before the end."""
_RESULTS = Path("runs/paper")
_PAGE = Path("docs/reproduction.md")
_WHY = Path("docs/why.md")
_training = partial(option_field, panel="Training")


@dataclass(frozen=True)
class TrainingChoices:
    """Settings that determine the numbers of a run, except rows and seeds: fields of `ExperimentSettings`."""

    protocol: str = protocol_field(panel="Training")
    recipe: str = _training(
        "paper: Adam, BatchNorm, dropout. default: as `daes train` does, without evidence, numbers scaled as "
        "each method's authors do.",
        default="paper",
        of=one_of("paper", "default"),
    )
    batch_size: int | None = _training(
        "Rows per step.", of=whole_number(1, "ROWS"), show_default="8192, less on few rows"
    )
    tune: bool = _training(
        "Tune learning rate and L2 over the paper's grid, on validation data.", "--tune", default=False
    )
    methods: Names | None = _training("Train these methods only.", of=NAMES)
    backbones: Names | None = _training("Train on these backbones.", of=NAMES)
    streams: Names | None = _training(
        "For `ladder`: train on these streams, files NAME.parquet of the folder.", of=NAMES
    )
    given: Names | None = _training(
        "For `ladder`: what rivals are given of the default's inputs: none, plain, evidence, both.",
        of=NAMES,
        show_default="all four",
    )
    given_to: Names | None = _training(
        "For `ladder`: only these rivals are given anything.", of=NAMES, show_default="all"
    )
    rungs: str = _training("For `ladder`: all, or ends (the published gate and the default).", default="all")
    device: str = _training("auto, cpu, cuda or cuda:1.", default="cpu", of=DEVICE)


@grouped
def paper(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="An experiment by name, `all` of them, `list`, `figure` (draw again), `report` (make a page) or `why` "
            "(make the page of `ladder`).",
            show_default=False,
        ),
    ],
    files: list[Path] | None = typer.Argument(
        None, metavar="[RESULT.json]...", help="Results for `figure`.", show_default=False
    ),
    data: list[str] | None = option(
        "criteo:PATH, automl:PATH, adstream[:ROWS] or flights; may be repeated. For `ladder`, the folder of its "
        "streams.",
        "--data",  # some versions of typer would call it --DATA
        metavar="DATA",
        show_default="adstream and flights; data for `ladder`",
    ),
    rows: int | None = option(
        "Use at most this many rows.", "--rows", "--rows-per-stream", of=whole_number(1, "ROWS"), default=None
    ),
    seeds: int = option("Number of seeds: 0, 1, …, N − 1.", of=whole_number(1), default=5),
    jobs: int | None = option(
        "Number of processes.", "--jobs", "--workers", "-j", of=whole_number(1), show_default="one per core"
    ),
    target: Path | None = option(
        "A folder for results; the file of the page (`report`) or of the figure (`figure`).",
        "--out",
        "-o",
        metavar="OUT",
        show_default=f"{_RESULTS}; {_PAGE} for `report`, {_WHY} for `why`",
    ),
    resume: bool = option(
        "Continue with what is in OUT: keep results, reuse finished trials.", "--resume", default=False
    ),
    overwrite: bool = option("Replace what is in OUT.", "--overwrite", default=False),
    time_limit: int | None = option(
        "Stop after the trial in progress, with exit code 3; --resume continues.", of=whole_number(1, "SECONDS")
    ),
    results: Path = option(
        "The folder of results that `report` and `why` read.", metavar="DIR", default=Path("docs/results")
    ),
    json: Json = False,
    *,
    training: TrainingChoices,
) -> None:
    """Run the paper's experiments again: each table and figure is a name.

    Every result is a small JSON file, with a Markdown table and a figure made from it. If results or finished trials
    exist already, that is an error unless `--resume` or `--overwrite` is given.

    Examples:

        daes paper list
        daes paper estimation --data criteo:train.txt
        daes paper all --rows 20000 --seeds 1 --jobs 2 --out runs/quick
        daes paper overall --data criteo:train.txt --jobs 16 --resume --time-limit 540 --out runs/sweep
        daes paper ladder --data streams --workers 16 --resume --out runs/ladder
        daes paper figure runs/sweep/overall.criteo.stream.json
        daes paper report --results docs/results --out docs/reproduction.md
    """
    if what == "list":
        _list(json)
    elif what == "figure":
        _figures(files or [], target)
    elif what == "report":
        from daes.paper.page import write_page

        number = write_page(results, target or _PAGE)
        say(f"wrote {target or _PAGE} from {number} results")
    elif what == "why":
        from daes.paper.why import write_why

        write_why(results, target or _WHY)
        say(f"wrote {target or _WHY}")
    else:
        from daes.paper.experiment import Execution, ExperimentSettings

        if resume and overwrite:
            raise ValueError("--resume and --overwrite exclude each other, got both")
        _check_used(what, [field.name for field in fields(ExperimentSettings) if was_given(context, field.name)])
        chosen = {**vars(training), "device": find_device(training.device)}
        settings = ExperimentSettings(rows=rows, seeds=seeds, **given_options(chosen))
        deadline = None if time_limit is None else monotonic() + time_limit
        execution = Execution(target or _RESULTS, jobs or cores(), resume, deadline, note=note)
        _run(what, settings, data or [], execution, overwrite, json)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _list(json: bool) -> None:
    from rich.table import Table

    from daes.paper import EXPERIMENTS

    if json:
        print_json({name: {"title": one.title, "what": one.what} for name, one in EXPERIMENTS.items()})
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, experiment in EXPERIMENTS.items():
        table.add_row(name, experiment.what)
    out.print(table)


def _figures(files: list[Path], target: Path | None) -> None:
    from daes.paper.result import ExperimentResult
    from daes.paper.running import draw, present

    if not files:
        raise ValueError("`daes paper figure` needs results to draw, as in: daes paper figure RESULT.json")
    if target is not None and len(files) > 1:
        raise ValueError(f"--out names one figure; {len(files)} results are given")
    for file in files:
        result = ExperimentResult.load(file)
        figure = present(result, file.parent) if target is None else draw(result, target)
        say(f"wrote {figure}")


def _check_used(what: str, given: list[str]) -> None:
    """Raise an error for an option that the experiment does not use; with `all`, some experiments may not use it."""
    from daes.paper.running import find

    if what == "all":
        return
    uses = find(what).uses
    for name in given:
        if name not in uses:
            raise ValueError(f"{flag(name)} has no effect on {what}, which uses {', '.join(map(flag, uses))}")


def _run(
    what: str, settings: "ExperimentSettings", datasets: list[str], execution: "Execution", overwrite: bool, json: bool
) -> None:
    from daes.paper import EXPERIMENTS, OutOfTimeError
    from daes.paper.data import name_in
    from daes.paper.running import plan, run_experiment

    folder = execution.folder
    if what == "ladder" and datasets:
        if len(datasets) > 1:
            raise ValueError(f"--data must name one folder for ladder, got {', '.join(datasets)}")
        execution, datasets = replace(execution, data=Path(datasets[0])), []
    everything = [name for name, experiment in EXPERIMENTS.items() if experiment.of_the_paper]
    runs = list(plan(everything if what == "all" else [what], datasets))
    if not runs:
        raise ValueError(f"{what} does not run on {', '.join(datasets)}")
    failed, incomplete = [], []
    for number, (experiment, dataset) in enumerate(runs, start=1):
        name = experiment.name + ("" if dataset is None else f" on {name_in(dataset)}")
        note(f"[{number}/{len(runs)}] {name}")
        try:
            result, known = run_experiment(experiment, settings, dataset, execution, overwrite=overwrite)
        except OutOfTimeError as limit:
            note(f"out of time at {name}: {limit}; --resume continues from there")
            raise typer.Exit(OUT_OF_TIME) from None
        except Exception as error:
            if len(runs) == 1:
                raise
            failed.append(name)
            note(f"failed: {name}: {error}")
            continue
        incomplete += [f"{name}: {failure}" for failure in result.failures]
        if json:
            typer.echo((folder / f"{result.stem}.json").read_text(encoding="utf-8"), nl=False)
        elif known:
            say(f"{folder / result.stem}.json was there already")
        else:
            out.print(f"\n{experiment.title} · {result.where}\n", style="bold", soft_wrap=True)
            say(experiment.markdown(result))
            say(f"\n{experiment.verdict(result)}")
            out.print(f"wrote {folder / result.stem}.json, .md and .png", style="dim", soft_wrap=True)
    for failure in incomplete:
        note(f"failed: {failure}")
    if incomplete:
        note(f"{len(incomplete)} trials failed; --resume tries them again")
    if failed:
        note(f"{len(failed)} of {len(runs)} failed: {', '.join(failed)}")
    if failed or incomplete:
        raise typer.Exit(1)
