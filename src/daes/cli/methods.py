"""`daes methods`: a table of all methods that turn a number into a vector, or one of them with its options."""

import typer

from daes.cli.console import out, print_json
from daes.cli.options import Json, option


def methods(
    name: str | None = typer.Argument(
        None, metavar="NAME", help="A method to explain, with its options.", show_default=False
    ),
    markdown: bool = option("Print the table of docs/methods.md, as Markdown.", "--markdown", default=False),
    json: Json = False,
) -> None:
    """List every method that turns a number into a vector, or explain one.

    Streaming methods learn a feature's statistics from the stream, offline methods must be fitted beforehand.
    Continuous: close values have close vectors. Distribution-aware: the vector depends on the rank of a value among all
    values. Field-aware: the vector also depends on the row's categories.

    Examples:

        daes methods
        daes methods daes
        daes methods autodis --json
    """
    from daes.cli import entry_text, method_text
    from daes.embedding import METHODS

    if markdown and (json or name is not None):
        raise ValueError("--markdown prints the whole table and excludes NAME and --json")
    if markdown:
        typer.echo(method_text.markdown(), nl=False)
    elif name is None and json:
        print_json([entry.to_dict() for entry in METHODS.values()], ensure_ascii=False)
    elif name is None:
        out.print(method_text.table(out.width))
    elif json:
        print_json(entry_text.explanation(METHODS.find(name)), ensure_ascii=False)
    else:
        out.print(method_text.render(name))
