"""Options that several verbs share, so that they are called and explained alike."""

from typing import Annotated

import typer

BatchSize = Annotated[int, typer.Option("--batch-size", min=1, metavar="ROWS", help="Rows read at a time.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Where random numbers start.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
