import re
from dataclasses import replace

import pytest

from daes.paper import EXPERIMENTS, Means, Result, Settings
from daes.paper.page import _anchor, write_page
from daes.paper.running import run_experiment


@pytest.fixture
def results(tmp_path, criteo):
    folder = tmp_path / "docs" / "results"
    for name, data in (("value-space-limit", None), ("stationarity", criteo), ("estimation", criteo)):
        run_experiment(EXPERIMENTS[name], Settings(seeds=1), data, folder, Means(folder))
    return folder


def test_the_page_tells_every_result_and_what_is_missing(results, criteo):
    page = results.parent / "reproduction.md"
    assert write_page(results, page) == 3
    text = page.read_text()
    for stem in ("estimation.criteo", "stationarity.criteo", "value-space-limit"):
        assert f"](results/{stem}.png)" in text
        assert f"](results/{stem}.json)" in text
    for name in ("estimation", "stationarity", "value-space-limit"):
        assert EXPERIMENTS[name].claim in text
        assert EXPERIMENTS[name].differs in text
    assert "`daes paper estimation --data criteo:train.parquet --seeds 1`" in text
    assert "no results of `jump-bias`" in text
    assert criteo.spec.partition(":")[2] not in text
    assert "| Criteo | 26 | 13 | 3,000 | genuine |" in text


def test_the_page_says_what_has_no_command(results):
    page = results.parent / "reproduction.md"
    write_page(results, page)
    text = " ".join(page.read_text().split())
    assert "Figures 1 and 2" in text
    assert "Table 1" in text


def test_results_of_any_code_are_read(results):
    path = results / "value-space-limit.json"
    result = Result.load(path)
    replace(result, versions={"daes": "0.0.1"}).save(results)
    assert write_page(results, results.parent / "reproduction.md") == 3
    assert "daes 0.0.1 ·" in (results.parent / "reproduction.md").read_text()


def test_links_within_the_page_lead_somewhere(results):
    page = results.parent / "reproduction.md"
    write_page(results, page)
    text = page.read_text()
    anchors = {_anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
    for path in re.findall(r"\]\((results/[^)]*)\)", text):
        assert (page.parent / path).is_file()


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must hold results"):
        write_page(tmp_path, tmp_path / "page.md")
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_page(tmp_path / "nowhere", tmp_path / "page.md")
