"""`daes compare`: the paper's table, on your data."""

from functools import partial
from pathlib import Path
from typing import Any

import typer

from daes.cli import console
from daes.cli.console import note, say
from daes.cli.groups import grouped
from daes.cli.options import Json, Kind, Names, option, parse_names, registered_list, whole_number
from daes.cli.progress import trial_progress
from daes.cli.reading import Columns, DataArgument, Reading
from daes.cli.settings import ModelOptions, ProtocolOptions, TrainingOptions
from daes.cli.toml_file import Config

_METHODS = Names(("efd", "fe", "autodis", "ple", "dae", "daes"))
_BACKBONES = Names(("deepfm",))
_run = partial(option, panel="Run")


def parse_seeds(given: str | list[str]) -> tuple[int, ...]:
    """The seeds, from their number or a list.

    >>> parse_seeds("3"), parse_seeds("7,11")
    ((0, 1, 2), (7, 11))
    """
    numbers = [whole_number(0).parse(text) for text in parse_names(given)]
    if len(numbers) != 1:
        return tuple(numbers)
    return tuple(range(whole_number(1).parse(str(numbers[0]))))


@grouped
def compare(
    data: DataArgument,
    methods: Names = option(
        "Methods to compare: some of {method}; {rival}.", of=registered_list("method", "rival"), default=_METHODS
    ),
    backbones: Names = option(
        "Backbones to train on: some of {backbone}.", of=registered_list("backbone"), default=_BACKBONES
    ),
    seeds: Any = option("The number of seeds, or a list of them: 5, or 1,2,3.", of=Kind(parse_seeds, "N"), default="5"),
    jobs: int | None = option(
        "Number of processes.", "--jobs", "-j", of=whole_number(1), show_default="1", default=None
    ),
    ray: bool = option(
        "Run trials as tasks of a Ray cluster: --jobs at a time, by default as many as fit.", "--ray", default=False
    ),
    refit: bool = option(
        "Fit offline methods again on the past after 1/16, 1/8, 1/4 and 1/2 of the stream.", default=True
    ),
    authors_inputs: bool = option(
        "Scale numbers as each method's authors do (fe, plr: normal score; dlrm, autodis: logarithm; deer: "
        "rank), or by its preset.",
        "--authors-inputs/--preset-inputs",
        default=True,
    ),
    out: Path | None = _run(
        "A folder for results, table and report. Results that it already holds are not computed again.",
        "--out",
        "-o",
        metavar="OUT",
    ),
    report: bool = _run("Write report.html.", default=True),
    config: Config = None,
    json: Json = False,
    *,
    protocol: ProtocolOptions,
    columns: Columns,
    reading: Reading,
    model: ModelOptions,
    training: TrainingOptions,
) -> None:
    """Train methods × backbones × seeds on one stream and make the paper's table from the results.

    Each entry is the mean and standard deviation over the seeds. `daes` (or the best method) is tested against every
    baseline on the same rows, by DeLong's paired test of AUCs and by a bootstrap over blocks of consecutive rows, with
    Holm's correction for all comparisons. All methods with one seed start from the same tables and see the same
    batches. Offline methods are fitted on the first `--sample-rows` rows, which are also scored (this favours them, as
    in the paper), and again later in the stream.

    With `--out`, each result is kept as soon as it is known. The same command continues where it was stopped; more
    methods or seeds add to the results. A trial that fails is reported, and the others go on.

    Examples:

        daes compare flights --methods efd,ple,daes --seeds 3 --batch-size 512
        daes compare clicks.parquet --methods efd,ple,daes --backbones fnn,deepfm --seeds 5 --out table --json
        daes compare clicks.parquet --methods daes,efd,lightgbm,ftrl --seeds 1
        daes compare criteo:train.txt --protocol paper --jobs 8 --out table
        RAY_ADDRESS=auto daes compare clicks.parquet --ray --out table
    """
    from daes.experiments.compare import compare as run_comparison
    from daes.report.page import write_report

    if protocol.protocol == "paper" and training.label_delay:
        raise ValueError(
            f"--label-delay is for one pass over a stream, got {training.label_delay} and --protocol paper"
        )
    found, order = columns.open(data, reading).in_time_order()
    if order is not None:
        note(f"{order[0].upper()}{order[1:]}.")
    training = training.resolved(found)
    run = None
    if ray:
        from daes.engines.ray import RayTasks

        run = RayTasks(jobs)
    with trial_progress() as progress:
        comparison = run_comparison(
            found,
            methods=methods,
            backbones=backbones,
            seeds=seeds,
            protocol=protocol.protocol,  # type: ignore[arg-type]
            train=training.config(),
            offline=protocol.config(),
            model=model.arguments(),
            sample_rows=model.sample_rows,
            refit=refit,
            authors_inputs=authors_inputs,
            device=training.device,
            jobs=jobs or 1,
            run=run,
            out=out,
            progress=progress,
        )
    page = write_report(out) if report and out is not None else None
    if json:
        typer.echo(comparison.to_json())
    else:
        console.out.print(comparison)
        if out is not None:
            say(f"wrote {out}" + (f", look at {page}" if page else ""))
    if comparison.failures:
        for result in comparison.failures:
            name = f"{result.label} on {result.backbone}, seed {result.seed}"
            note(f"failed: {name}: {result.error}")
        raise typer.Exit(1)
