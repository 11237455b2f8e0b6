"""`daes distribution`: estimators of a column's distribution compared."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from daes.cli.console import note, out, print_json
from daes.cli.options import NAMES, BatchSize, Json, Names, Seed, option, whole_number
from daes.formatting import compact, count, on_one_line, percent
from daes.table import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daes.distribution.summary import TableSummary


def distribution(
    file: str | None = typer.Argument(
        None,
        metavar="FILE",
        help="A Parquet or CSV file (.csv, .tsv, also compressed), a glob or folder of such files, or a dataset "
        "by name (flights). Without it a stream of two million values is generated.",
        show_default=False,
    ),
    column: str | None = option(
        "The column to read; needed unless only one is numeric.", "--column", "-c", metavar="NAME", default=None
    ),
    size: int = option("Values that each reservoir keeps.", of=whole_number(1, "SLOTS"), default=100_000),
    levels: str | None = option(
        "Levels at which quantiles are compared, as in 0.1,0.5,0.9.",
        metavar="LIST",
        show_default="every percent, 0.01 to 0.99",
    ),
    estimators: Names | None = option(
        "Some of reservoir, jump, jump-paper, order-statistics, kll, tdigest, gk.", of=NAMES, show_default="all"
    ),
    plot: Path | None = option(
        "Also draw to OUT.html (one file, works offline) or OUT.png.", metavar="OUT", default=None
    ),
    ray: bool = option(
        "Summarize all columns of numbers, read in parts by tasks of a Ray cluster.", "--ray", default=False
    ),
    spark: bool = option(
        "Summarize all columns of numbers, read in parts by Spark's executors.", "--spark", default=False
    ),
    parts: int = option(
        "With --ray or --spark: number of parts to cut the table into. A CSV file is always one part.",
        of=whole_number(1),
        default=16,
    ),
    batch_size: BatchSize = 8192,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare estimators of a column's distribution after one pass.

    The column is streamed in batches through reservoir sampling (RS), jump reservoir sampling (JRS, with the exact rule
    and the paper's), order statistics (OS, the mean of batch quantiles), and the KLL, t-digest and Greenwald–Khanna
    sketches. Each is compared with the true quantiles: error, random numbers drawn, time and memory.

    Missing and infinite values are skipped and counted. The true quantiles are those of all values; up to 20 million
    values are kept for this comparison alone, and no estimator sees more than one batch at a time.

    With `--ray` or `--spark` nothing is compared: the table may be larger than one machine can read. Every column of
    numbers, or that of `--column`, gets a jump reservoir per part; merged, these are an exact uniform sample of all
    values. The result is counts, range and quantiles.

    Examples:

        daes distribution
        daes distribution clicks.parquet --column price --plot price.html
        daes distribution flights -c distance --estimators jump,kll --json
        daes distribution 's3://logs/2026-*/' --spark --parts 400
    """
    if ray or spark:
        if ray and spark:
            raise ValueError("--ray and --spark exclude each other, got both")
        if estimators is not None or plot is not None:
            raise ValueError(f"{'--ray' if ray else '--spark'} compares no estimators, got --estimators or --plot")
        _summarize(file, column, "ray" if ray else "spark", parts, size, levels, seed, json)
        return
    from daes.cli.column import generated_column, open_column
    from daes.cli.estimator_plot import check_plot, write_plot
    from daes.cli.estimator_text import headline, render
    from daes.cli.progress import row_progress
    from daes.distribution.estimator_report import PERCENTILES, compare_estimators

    wanted = PERCENTILES if levels is None else _numbers(levels)
    if plot is not None:
        check_plot(plot, ".html", ".png")
    if file is None and column is not None:
        raise ValueError(f"--column needs a FILE to be a column of, got --column {column} without one")
    stream = generated_column(seed=seed) if file is None else open_column(file, column)
    for remark in stream.data.notes:
        note(f"note: {remark}")
    with row_progress("reading", stream.expected_rows()) as bar:

        def advance(rows: int) -> None:
            bar.set_total(stream.expected_rows())
            bar.advance(rows)

        comparison = compare_estimators(
            stream.batches(batch_size),
            size=size,
            levels=wanted,
            estimators=estimators,
            seed=seed,
            progress=advance,
            name=stream.description,
        )
    if plot is not None:
        write_plot(comparison, plot, stream.description)
        note(f"wrote {plot}")
    if json:
        print_json({"stream": stream.description, **comparison.to_dict()})
        return
    out.print(headline(comparison, stream.description))
    out.print(render(comparison, out.width, plain=out.options.ascii_only))


def _summarize(
    file: str | None, column: str | None, engine: str, parts: int, size: int, levels: str | None, seed: int, json: bool
) -> None:
    from daes.cli.column import open_numbers
    from daes.distribution.base import check_levels
    from daes.distribution.summary import SUMMARY_LEVELS
    from daes.engines import start_engine, summarize_table

    if file is None:
        raise ValueError(f"--{engine} needs a FILE to read, got none")
    wanted = SUMMARY_LEVELS if levels is None else tuple(check_levels(_numbers(levels)).tolist())
    data = open_numbers(file, column)
    summary = summarize_table(data, engine=start_engine(engine), parts=parts, size=size, seed=seed)
    if json:
        print_json({"table": file, **summary.to_dict(wanted)})
        return
    out.print(file, style="bold")
    out.print(
        f"{count(summary.rows)} rows; quantiles of a uniform sample of up to {count(summary.size)} values per column.\n"
    )
    out.print(_summary_table(summary, wanted))


def _summary_table(summary: "TableSummary", levels: "Sequence[float]") -> Table:
    """Missing values, range and quantiles of every column."""
    found = zip(
        summary.columns, summary.skipped, summary.minimum, summary.quantile(levels), summary.maximum, strict=True
    )
    rows = [
        [
            Cell(on_one_line(name), style="bold"),
            percent(float(missing) / summary.rows if summary.rows else None),
            *(compact(float(value)) for value in (low, *quantiles, high)),
        ]
        for name, missing, low, quantiles, high in found
    ]
    return Table(("column", "missing", "min", *(f"{100 * level:g} %" for level in levels), "max"), rows)


def _numbers(levels: str) -> list[float]:
    try:
        return [float(level) for level in levels.split(",")]
    except ValueError:
        raise ValueError(f"--levels must be numbers separated by commas, got {levels!r}") from None
