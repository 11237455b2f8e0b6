import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from daes.backbone import BACKBONES, build_backbone
from daes.cli.app import build_app
from daes.cli.entry_text import explanation

DOCS = Path(__file__).parents[2] / "docs"
runner = CliRunner()


def run(*arguments: str):
    return runner.invoke(build_app(), ["backbones", *arguments], prog_name="daes")


@pytest.fixture(autouse=True)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The terminal's width, whatever it is where the tests run."""
    width: int = getattr(request, "param", 80)
    monkeypatch.setattr("daes.cli.backbones.out", Console(width=width, highlight=False))
    return width


@pytest.mark.parametrize("width", [70, 80, 120], indirect=True)
def test_the_table_lists_every_backbone(width: int) -> None:
    result = run()
    assert result.exit_code == 0, result.stderr
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert set(BACKBONES) <= set(rows)
    assert max(len(line) for line in result.stdout.splitlines()) <= width
    assert ("Guo et al., IJCAI 2017" in rows["deepfm"]) == (width >= 90)
    assert " yes" in rows["deepfm"]
    assert " yes" not in rows["fm"]


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_is_explained(name: str) -> None:
    entry = BACKBONES[name]
    explained = explanation(entry)
    assert explained["text"]
    assert "Args:" not in explained["text"]
    for option in explained["options"]:
        assert option["help"], f"{name} says nothing of {option['name']}"
    build_backbone(name, 3, 4, **{option["name"]: option["default"] for option in explained["options"]})
    result = run(name)
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert str(entry.reference) in said
    assert entry.interactions in said
    for option in explained["options"]:
        assert re.search(rf"^{option['name']} ", result.stdout, re.MULTILINE)
    read = json.loads(run(name, "--json").stdout)
    assert (read["name"], read["takes_plain"]) == (name, entry.takes_plain)


def test_json_has_the_whole_registry() -> None:
    read = json.loads(run("--json").stdout)
    assert [row["name"] for row in read] == list(BACKBONES)
    assert next(row for row in read if row["name"] == "fm")["takes_plain"] is False


def test_mistakes_are_one_sentence() -> None:
    result = run("deepfn")
    assert result.exit_code == 2
    assert "did you mean 'deepfm'?" in result.stderr
    result = run("--markdown", "--json")
    assert result.exit_code == 2
    assert "--markdown prints the whole table" in result.stderr


def test_the_table_in_the_docs_is_up_to_date() -> None:
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    table = re.search(r"<!-- daes backbones --markdown -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert table is not None
    assert table[1] == run("--markdown").stdout, "put the output of `daes backbones --markdown` between the marks"
