"""`daes predict`: write the scores of a file's rows to another file."""

import sys
from pathlib import Path

from daes.cli.console import note, print_json
from daes.cli.groups import grouped
from daes.cli.options import NAMES, BatchSize, Device, Json, Names, RunArgument, option
from daes.cli.reading import DataArgument, Reading
from daes.training.environment import find_device


@grouped
def predict(
    run: RunArgument,
    data: DataArgument,
    out: Path = option(
        "Output: .parquet or .csv; - writes CSV to stdout.",
        "--out",
        "-o",
        metavar="FILE",
        show_default=False,
        default=...,
    ),
    keep: Names | None = option("Columns of the data to copy to the output unchanged.", of=NAMES),
    column: str = option("Name of the score column.", metavar="NAME", default="score"),
    *,
    reading: Reading,
    batch_size: BatchSize = 8192,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write the click probability of every row of a file, in the same order.

    The data may be larger than memory and need no label. FILE appears once it is complete. With `--bad-rows skip` a row
    that cannot be read gets an empty score (NaN in a CSV file of scores alone). CSV files are read as those of training
    were (separator, decimal mark, missing values, …), unless options say otherwise.

    Examples:

        daes predict run today.parquet --out scores.parquet
        daes predict run 'today/*.csv' --keep request_id,ad_id --out scores.csv
        zcat today.csv.gz | daes predict run - --out - | gzip > scores.csv.gz
    """
    from daes.cli.progress import row_progress
    from daes.storage.run_folder import RunFolder
    from daes.training.scoring import load_trained
    from daes.training.scoring import predict as write_predictions

    to_stdout = str(out) == "-"
    if json and to_stdout:
        raise ValueError("--json and --out - both write to standard output: give only one of them")
    if to_stdout and sys.stdout is None:
        raise ValueError("standard output is closed")
    model = load_trained(run, find_device(device))
    with row_progress("scoring", reading.limit) as bar:
        written = write_predictions(
            model,
            reading.open(data, schema=model.schema, trained=RunFolder(run).data_options()),
            sys.stdout.buffer if to_stdout else out,
            keep=keep or (),
            column=column,
            batch_size=batch_size,
            progress=bar.advance,
        )
    bad = written.bad_rows
    if bad.count:
        rows = "1 row has" if bad.count == 1 else f"{bad.count:,} rows have"
        note(f"{rows} no score; {bad.first[0]}")
    if json:
        content = {"run": str(run), "data": data, "out": str(out), "rows": written.rows, "bad_rows": bad.count}
        print_json(content)
    elif not to_stdout:
        note(f"wrote {written.rows - bad.count:,} scores to {out}")
