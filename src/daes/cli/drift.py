"""`daes drift`: how far each numerical column drifts along the stream."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from daes.cli.console import note, out, print_json
from daes.cli.groups import grouped
from daes.cli.options import Json, option, whole_number
from daes.cli.reading import Columns, DataArgument, Reading, data_name
from daes.formatting import NONE, fixed, on_one_line
from daes.table import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daes.distribution import DriftProfile
    from daes.stream.dataset import Dataset


@grouped
def drift(
    data: DataArgument,
    segments: int = option("Number of segments of the stream; the paper uses 1000.", of=whole_number(2), default=100),
    bins: int = option("Bins of the PSI.", of=whole_number(2), default=10),
    plot: Path | None = option(
        "Also write a page with figures, which works offline.", metavar="OUT.html", default=None
    ),
    *,
    columns: Columns,
    reading: Reading,
    json: Json = False,
) -> None:
    """Show how far the numerical columns drift: PSI and KS of consecutive segments against the first.

    PSI below 0.1 is usually called stable, above 0.25 a shift; KS is the largest gap between two distribution
    functions. Short segments differ by chance: the table says by how much on average. No label is needed. Values beyond
    ±3.4e38 are infinite and count as missing.

    Two segments are in memory at a time. A stream of unknown length is read twice.

    Examples:

        daes drift flights
        daes drift clicks.parquet --numerical price,age --segments 1000 --plot drift.html
    """
    if plot is not None:
        from daes.cli.estimator_plot import check_plot

        check_plot(plot, ".html")
    found = columns.open(data, reading, needs_label=False)
    if not found.schema.numerical:
        raise ValueError(f"there is no numerical column in {data_name(data)}")
    profiles, rows = _profiles(found, segments, bins)
    if found.bad_rows.count:
        note(str(found.bad_rows))
    if plot is not None:
        _write_page(profiles, rows, data_name(data), plot)
        note(f"wrote {plot}")
    if json:
        print_json({"data": data, "rows": rows, "columns": _plain(profiles)})
        return
    out.print(f"{rows:,} rows in {segments} segments, each against the first")
    out.print(_table(profiles))


def _profiles(data: "Dataset", segments: int, bins: int) -> "tuple[dict[str, DriftProfile], int]":
    from daes.cli.progress import row_progress
    from daes.distribution.stream_drift import stream_drift

    with row_progress("counting") as bar:
        skips = data.options.get("bad_rows") == "skip"  # then only reading tells how many rows are left
        total = sum(len(batch) for batch in _batches(data, bar)) if skips else data.count_rows()
    with row_progress("reading", total) as bar:
        series = stream_drift((batch.numerical for batch in _batches(data, bar)), total, segments, bins)
    return dict(zip(data.schema.numerical, series, strict=True)), total


def _batches(data: "Dataset", bar: Any) -> "Iterator[Any]":
    from daes.stream.schema import Schema

    schema = Schema(None, data.schema.numerical, ())
    for batch in data.from_start(prefetch=2).iter_batches(schema, 65_536):
        bar.advance(len(batch))
        yield batch


def _table(profiles: "dict[str, DriftProfile]") -> Table:
    """One row per column, the one with the largest PSI first."""
    import numpy as np

    rows: list[list[object]] = []
    for name, profile in sorted(profiles.items(), key=lambda item: -np.nan_to_num(item[1].psi, nan=-1.0).max()):
        shown: list[object] = [NONE] * 7
        if not np.isnan(profile.psi).all():
            psi, ks = int(np.nanargmax(profile.psi)), int(np.nanargmax(profile.ks))
            style = "red" if profile.psi[psi] > 0.25 else "yellow" if profile.psi[psi] > 0.1 else "green"
            shown = [
                fixed(np.nanmedian(profile.psi), 3),
                Cell(fixed(profile.psi[psi], 3), style=style),
                str(psi),
                fixed(profile.psi_by_chance[psi], 3),
                fixed(np.nanmedian(profile.ks), 3),
                fixed(profile.ks[ks], 3),
                fixed(profile.ks_by_chance[ks], 3),
            ]
        rows.append([Cell(on_one_line(name), style="bold"), *shown, _range(profile.missing)])
    head = (
        "column",
        "PSI median",
        "largest",
        "in segment",
        "by chance",
        "KS median",
        "largest",
        "by chance",
        "missing",
    )
    return Table(head, rows)


def _range(missing: Any) -> str:
    low, high = 100 * float(missing.min()), 100 * float(missing.max())
    return f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f}–{high:.0f} %"


def _plain(profiles: "dict[str, DriftProfile]") -> dict[str, Any]:
    from daes.storage.run_folder import plain

    series = ("psi", "ks", "psi_by_chance", "ks_by_chance", "missing", "counts")
    return {
        name: {kind: plain(getattr(profile, kind)) for kind in series} | {"rows": plain(profile.bounds[1:])}
        for name, profile in profiles.items()
    }


def _write_page(profiles: "dict[str, DriftProfile]", rows: int, data: str, path: Path) -> None:
    import numpy as np

    from daes.report.content import Page, Section
    from daes.report.distribution_figures import drift_figures, missing_figure
    from daes.report.rendering import render
    from daes.report.run_record import DriftSeries
    from daes.storage.durable import write_text

    some = next(iter(profiles.values()))
    ends = some.bounds[1:].astype(np.float64)
    series = {
        kind: np.stack([getattr(profile, kind) for profile in profiles.values()], axis=1)
        for kind in ("psi", "ks", "psi_by_chance", "ks_by_chance")
    }
    figures = drift_figures(DriftSeries(tuple(profiles), ends, int(ends[0]), **series))
    missing = missing_figure({name: profile.missing for name, profile in profiles.items()}, ends)
    sections = [Section("drift", "Drift", figures)]
    if missing is not None:
        sections.append(Section("missing", "Missing values", [missing]))
    lead = f"{rows:,} rows in {some.segments} segments, each against the first."
    write_text(path, render(Page(f"Drift of {data}", lead, sections)))
