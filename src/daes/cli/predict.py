"""`daes predict`: file in, file out."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from daes.cli.console import err
from daes.cli.evaluate import Device, RunArgument
from daes.cli.groups import grouped
from daes.cli.options import BatchSize, Json
from daes.cli.reading import DataArgument, Reading
from daes.cli.settings import Names, find_device, names


@grouped
def predict(
    run: RunArgument,
    data: DataArgument,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write: .parquet or .csv.", show_default=False),
    ],
    keep: Annotated[
        Names | None,
        typer.Option("--keep", parser=names, metavar="LIST", help="Columns of the data to write beside the score."),
    ] = None,
    column: Annotated[str, typer.Option("--column", metavar="NAME", help="What the scores are called.")] = "score",
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    batch_size: BatchSize = 8192,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write the probability of a click for every row of a file, in the order of its rows.

    The data may be larger than memory and need no label. FILE appears once it is whole.

    Examples:

        daes predict run today.parquet --out scores.parquet
        daes predict run 'today/*.csv' --keep request_id,ad_id --out scores.csv
    """
    from daes.cli.progress import steps
    from daes.training.scoring import load_trained
    from daes.training.scoring import predict as write_predictions

    model = load_trained(run, find_device(device))
    with steps("scoring", reading.limit) as bar:
        rows = write_predictions(
            model,
            reading.open(data, model.schema),
            out,
            keep=keep or (),
            column=column,
            batch_size=batch_size,
            progress=bar.advance,
        )
    if json:
        typer.echo(dumps({"run": str(run), "data": data, "out": str(out), "rows": rows}))
    else:
        err.print(f"wrote {rows:,} scores to {out}", soft_wrap=True)
