from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from daes.cli.groups import grouped, restored, was_given
from daes.cli.options import option_field, parse_names
from daes.cli.settings import ModelOptions, widths
from daes.cli.toml_file import Config


@dataclass(frozen=True)
class Size:
    width: int = option_field("How wide.", default=3)
    tags: list[str] = option_field("What it is called.", "--tag", default=[])


seen = []


@grouped
def draw(call: typer.Context, name: Annotated[str, typer.Argument()], size: Size, config: Config = None) -> None:
    """Draw it."""
    stored = restored(call, size, {"width": 99, "tags": ["stored"]})
    seen.append((name, size, stored, was_given(call, "width")))


def run(*arguments):
    app = typer.Typer()
    app.command()(draw)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result if "--help" in arguments else seen.pop()


def test_a_group_is_options():
    assert run("box") == ("box", Size(), Size(99, ["stored"]), False)
    assert run("box", "--width", "5", "--tag", "a", "--tag", "b") == (
        "box",
        Size(5, ["a", "b"]),
        Size(5, ["a", "b"]),
        True,
    )
    assert "How wide." in run("--help").stdout


def test_a_file_counts_as_given(tmp_path):
    path = tmp_path / "size.toml"
    path.write_text("width = 7\n")
    assert run("box", "--config", str(path)) == ("box", Size(7), Size(7, ["stored"]), True)


def test_names():
    assert parse_names("a, b,,c ") == ("a", "b", "c")
    assert parse_names([" a,b "]) == ("a,b",)


def test_options_of_parts_are_only_those_given():
    assert ModelOptions().arguments() == {
        "dim": 16,
        "l2": 0.0,
        "context": "smallest",
        "num_context": 3,
        "evidence": {"pairs": 32, "triples": 32, "recent": 300.0},
        "categorical_options": {"mode": "hash", "sparse": False},
        "embedding_options": {},
        "backbone_options": {},
    }
    made = ModelOptions(context="none", method_option=["modulation=none", "beta=0.5", "basis=hat", "bounds=[0, 1]"])
    assert made.arguments()["context"] is None
    assert made.arguments()["embedding_options"] == {
        "modulation": None,
        "beta": 0.5,
        "basis": "hat",
        "bounds": [0, 1],
    }
    assert ModelOptions(evidence=False).arguments()["evidence"] is False
    assert ModelOptions(context="city,device").arguments()["context"] == ["city", "device"]
    assert ModelOptions(hidden=widths("none")).arguments()["backbone_options"] == {"hidden": []}
