"""`daes context`: which categorical fields the numerical features depend on."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from daes.cli.console import out, print_json
from daes.cli.groups import grouped
from daes.cli.options import Json, Seed, number, one_of, option, whole_number
from daes.cli.reading import Columns, DataArgument, Reading, data_name
from daes.formatting import fixed, on_one_line, p_value
from daes.table import Cell, Table

if TYPE_CHECKING:
    from daes.distribution.context import ContextRanking


@grouped
def context(
    data: DataArgument,
    rows: int = option("Rows at the start of the stream to test.", of=whole_number(1), default=100_000),
    top: int = option("How many fields to choose.", of=whole_number(1), default=3),
    alpha: float = option("Level of significance.", of=number(above=0, below=1), default=0.01),
    space: str = option(
        "Measure distances between rank or value distributions.", of=one_of("rank", "value"), default="rank"
    ),
    *,
    columns: Columns,
    reading: Reading,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Rank categorical fields by how much the distribution of the numerical features depends on them.

    A field-aware method (daes-gate, daes-tran) modulates the embedding of a number by some categorical fields. The
    paper takes the three with the smallest cardinality. This command ranks them by what they say of the numbers: a
    Kruskal–Wallis test says whether a field changes their distribution, and the mean Wasserstein distance between its
    groups and all rows by how much.

    `daes train --context ranked` makes this choice on its sample.

    Examples:

        daes context flights
        daes context clicks.parquet --label click --top 5 --json
    """
    from daes.distribution import rank_context_fields, smallest_cardinality
    from daes.stream.schema import Schema

    found = columns.open(data, reading, needs_label=False)
    if not found.schema.numerical or not found.schema.categorical:
        raise ValueError(f"{data_name(data)} must have a numerical and a categorical column; it lacks one of the kinds")
    schema = Schema(None, found.schema.numerical, found.schema.categorical)
    sample = found.with_schema(schema).sample(rows)
    ranking = rank_context_fields(
        sample.numerical,
        sample.categorical,
        names=schema.categorical,
        alpha=alpha,
        space=space,  # type: ignore[arg-type]
        seed=seed,
    )
    smallest = smallest_cardinality({row.field: row.groups for row in ranking.rows}, top)
    chosen = ranking.significant(top)
    if json:
        content = {
            "data": data,
            "rows": ranking.rows_used,
            "ranked": list(chosen),
            "smallest": list(smallest),
            "fields": [asdict(row) for row in ranking.rows],
        }
        print_json(content)
        return
    out.print(f"{ranking.rows_used:,} rows, {len(ranking.features)} numerical columns")
    out.print(_table(ranking))
    out.print(f"--context ranked:   {', '.join(map(on_one_line, chosen)) or 'none'}")
    out.print(f"--context smallest: {', '.join(map(on_one_line, smallest)) or 'none'}")


def _table(ranking: "ContextRanking") -> Table:
    rows = [
        (
            Cell(on_one_line(row.field), style="bold" if row.significant else "dim"),
            f"{row.cardinality:,}",
            fixed(row.strength),
            p_value(row.p_value),
            f"{row.features_affected} of {len(ranking.features)}",
        )
        for row in ranking.rows
    ]
    return Table(("field", "cardinality", "strength", "p", "columns affected"), rows)
