"""`daes demo`: a complete comparison on two small streams."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import typer

from daes.cli.console import note, out, print_json, say
from daes.cli.options import Json, option, whole_number
from daes.cli.progress import row_progress, trial_progress

if TYPE_CHECKING:
    from daes.report.comparison import Compared
    from daes.stream.dataset import Dataset
    from daes.training.config import TrainConfig

DEMO_METHODS = ("efd", "fe", "autodis", "ple", "dae", "daes-gate", "daes")
BACKBONE = "fnn"
BATCH_SIZE = 256


def demo(
    rows: int = option("Maximum rows of each stream.", of=whole_number(1000), default=90_000),
    seeds: int = option("Models per method.", of=whole_number(1), default=2),
    jobs: int = option("Models trained at the same time.", of=whole_number(1), default=2),
    folder: Path = option(
        "Folder for results and report; an older demo is replaced.", "--out", metavar="DIR", default=Path("runs/demo")
    ),
    json: Json = False,
) -> None:
    """Compare DAES with other embeddings of numerical features on flights and a simulated ad stream, in a few minutes.

    Every model reads the stream once and scores each batch before it learns from it. The flights left New York in 2013;
    the label says whether one was more than 15 minutes late. The ads are simulated, so the best possible score is
    known. One more run of `daes` on each stream records details: drift, knots, what the model learned.

    The tables are printed, and an HTML report is written. All methods are trained alike, by a recipe that was chosen on
    seven streams, the flights among them.
    """
    from daes.experiments.compare import compare
    from daes.report import compared_in, write_comparisons
    from daes.training.config import TrainConfig

    started = perf_counter()
    train = TrainConfig(batch_size=BATCH_SIZE, window=max(rows // 10, 1000))
    compared: list[Compared] = []
    for name, data, ceiling in _streams(rows):
        target = folder / name
        for old in ("results.jsonl", "comparison.json"):  # `compare` would reuse the results of an older demo
            (target / old).unlink(missing_ok=True)
        note(f"{name}:")
        with trial_progress() as progress:
            compare(
                data,
                methods=DEMO_METHODS,
                backbones=[BACKBONE],
                seeds=seeds,
                train=train,
                jobs=jobs,
                out=target,
                subject="daes",
                progress=progress,
            )
        _record(data, target / "run", train, rows)
        compared.append(compared_in(target, run_dir=target / "run", ceiling=ceiling))
    lead = (
        f"{len(DEMO_METHODS)} ways to embed numbers, in one pass over {' and '.join(one.name for one in compared)}; "
        "every batch is scored before it is learned from."
    )
    report = write_comparisons(folder / "report.html", "daes demo", lead, compared)
    seconds = perf_counter() - started
    if json:
        comparisons = [one.table.to_dict() for one in compared]
        print_json({"report": str(report), "seconds": seconds, "comparisons": comparisons})
    else:
        _print(compared, seconds)
        say(f"The report: {report}")
    if any(one.table.failures for one in compared):
        raise typer.Exit(1)


def _streams(rows: int) -> "Iterator[tuple[str, Dataset, dict[str, float]]]":
    """The flights, if installed, and the simulated ads: name, rows and the metrics of the true probabilities."""
    from daes.extras import MissingExtraError
    from daes.simulation import AdStream
    from daes.stream.dataset import Dataset

    try:
        yield "flights", Dataset.open("flights", limit=rows), {}
    except MissingExtraError as error:
        note(f"without the flights: {error}")
    whole, half = (AdStream(rows).bayes_metrics(start) for start in (0, rows // 2))
    ceiling = {"auc": whole.auc, "logloss": whole.logloss, "half_auc": half.auc, "half_logloss": half.logloss}
    yield "adstream", Dataset.open(f"adstream:{rows}"), ceiling


def _record(data: "Dataset", folder: Path, train: "TrainConfig", rows: int) -> None:
    """A run of `daes`, for the details that a comparison does not keep."""
    from daes.training.run import train_run

    model = {"embedding": "daes", "backbone": BACKBONE}
    with row_progress("recording", rows) as bar:
        train_run(
            data,
            folder,
            model=model,
            config=train,
            overwrite=True,
            callbacks=[lambda trainer, batch, logits: bar.advance(len(batch))],
        )


def _print(compared: "Sequence[Compared]", seconds: float) -> None:
    from daes.report.comparison_sections import result_table, verdict

    for one in compared:
        say(one.lead)
        out.print(result_table(one, BACKBONE))
        say(verdict(one))
        for failure in one.table.failures:
            say(f"{failure.label}, seed {failure.seed}, failed: {failure.error}")
        out.print()
    out.print(f"Done in {seconds:.0f} s.")
