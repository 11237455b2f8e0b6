import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.cli.entry_text import explanation
from daes.cli.method_text import page
from daes.embedding import METHODS, build_embedding
from daes.embedding.registry import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
runner = CliRunner()


def run(*arguments: str):
    return runner.invoke(build_app(), ["methods", *arguments], prog_name="daes")


@pytest.fixture(autouse=True)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The terminal's width, whatever it is where the tests run."""
    width: int = getattr(request, "param", 80)
    monkeypatch.setattr("daes.cli.methods.out", Console(width=width, highlight=False))
    return width


def rows_of(text: str) -> list[list[str]]:
    """The methods' rows, which stand beneath the name of their family."""
    return [line.split() for line in text.splitlines() if re.match("  [a-z]", line)]


@pytest.mark.parametrize("width", [60, 80, 120, 200], indirect=True)
def test_the_table_lists_every_method(width: int) -> None:
    result = run()
    assert result.exit_code == 0, result.stderr
    shown = {row[0].rstrip("*") for row in rows_of(result.stdout)}
    assert set(METHODS) <= shown
    assert max(len(line) for line in result.stdout.splitlines()) <= width
    for family in FAMILIES:
        assert family in result.stdout
    assert "…" not in result.stdout or width < 80


def test_titles_and_references_are_shown_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(width: int) -> str:
        monkeypatch.setattr("daes.cli.methods.out", Console(width=width, highlight=False))
        return run().stdout

    needed = next(len(line) for line in shown(400).splitlines() if line.startswith("─"))
    assert 100 < needed < 300
    for width in (needed, needed - 1):
        assert ("Guo et al., KDD 2021" in shown(width)) == ("AutoDis" in shown(width)) == (width == needed)
        assert "…" not in shown(width)


def test_the_table_says_what_the_methods_are() -> None:
    lines = {name: cells for name, *cells in rows_of(run().stdout)}
    assert lines["efd"] == ["offline", "–", "yes", "–"]
    assert lines["deer*"] == ["streaming", "yes", "–", "–"]
    assert lines["daes-tran"] == ["streaming", "yes", "yes", "yes"]
    assert lines["daes"] == ["streaming", "yes", "yes", "–"]


def test_json_has_the_whole_registry() -> None:
    read = json.loads(run("--json").stdout)
    assert sorted(row["name"] for row in read) == sorted(METHODS)
    row = next(row for row in read if row["name"] == "narydis")
    assert row["reconstruction"] is True
    assert (row["family"], row["streaming"], row["continuous"]) == ("neural", False, False)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_explained(name: str) -> None:
    explained = explanation(METHODS[name])
    assert explained["text"]
    assert "Args:" not in explained["text"]
    for option in explained["options"]:
        assert option["help"], f"{name} says nothing of {option['name']}"
    build_embedding(name, 3, 4, **{option["name"]: option["default"] for option in explained["options"]})
    result = run(name)
    assert result.exit_code == 0, result.stderr
    assert str(METHODS[name].reference) in " ".join(result.stdout.split())
    for option in explained["options"]:
        assert re.search(rf"^{option['name']} ", result.stdout, re.MULTILINE)
    assert json.loads(run(name, "--json").stdout)["name"] == name


def test_defaults_are_those_of_the_preset() -> None:
    published, ours = (
        {option["name"]: option["default"] for option in explanation(METHODS[n])["options"]}
        for n in ("daes-gate", "daes")
    )
    assert (published["basis"], published["knots"], published["linear"]) == ("thermometer", None, None)
    assert (ours["basis"], ours["knots"], ours["linear"], ours["modulation"]) == ("hat", 100, "value", None)


def test_mistakes_are_one_sentence() -> None:
    result = run("autodiss")
    assert result.exit_code == 2
    assert "did you mean 'autodis'?" in result.stderr
    result = run("--markdown", "--json")
    assert result.exit_code == 2
    assert "--markdown prints the whole table" in result.stderr


def test_the_table_in_the_docs_is_up_to_date() -> None:
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    table = re.search(r"<!-- daes methods --markdown -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert table is not None
    assert table[1] == run("--markdown").stdout, "put the output of `daes methods --markdown` between the marks"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_has_its_place_and_picture_in_the_docs(family: str) -> None:
    text = (DOCS / "methods" / page(family)).read_text(encoding="utf-8")
    for entry in METHODS.values():
        if entry.family == family:
            assert re.search(rf"^#+ .*`{entry.name}`", text, re.MULTILINE), f"{entry.name} has no section"
    for image in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text):
        assert (DOCS / "methods" / image).is_file()
