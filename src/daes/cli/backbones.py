"""`daes backbones`: a table of all networks that turn vectors into a logit, or one of them with its options."""

import typer

from daes.cli.console import out, print_json
from daes.cli.options import Json, option


def backbones(
    name: str | None = typer.Argument(
        None, metavar="NAME", help="A backbone to explain, with its options.", show_default=False
    ),
    markdown: bool = option("Print the table of docs/methods.md, as Markdown.", "--markdown", default=False),
    json: Json = False,
) -> None:
    """List every network that turns the vectors of a row into a logit, or explain one.

    Orders of interaction: how many fields are multiplied with each other; implicit is what an MLP learns. Plain inputs:
    numbers and evidence that enter the network without a vector.

    Examples:

        daes backbones
        daes backbones dcnv2
        daes backbones deepfm --json
    """
    from daes.backbone import BACKBONES
    from daes.cli import backbone_text, entry_text

    if markdown and (json or name is not None):
        raise ValueError("--markdown prints the whole table and excludes NAME and --json")
    if markdown:
        typer.echo(backbone_text.markdown(), nl=False)
    elif name is None and json:
        print_json([entry.to_dict() for entry in BACKBONES.values()], ensure_ascii=False)
    elif name is None:
        out.print(backbone_text.table(out.width))
    elif json:
        print_json(entry_text.explanation(BACKBONES.find(name)), ensure_ascii=False)
    else:
        out.print(backbone_text.render(name))
