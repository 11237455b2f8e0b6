import base64
import gzip
import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daes.formatting import duration, fixed
from daes.report import compared_in, write_comparisons, write_report
from daes.report.comparison_sections import work_facts

SECTIONS = (
    *("summary", "features", "scores", "calibration", "categories", "drift", "missing", "knots", "encoding"),
    *("throughput", "methods", "setup", "notes"),
)
VOID = {"meta", "link", "input", "br", "img", "hr"}


class Page(HTMLParser):
    """A page taken apart; a tag that is not closed, or closed in the wrong place, is an error."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.doctype = ""
        self._open: list[str] = []
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_decl(self, decl: str) -> None:
        self.doctype = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append((int(tag[1]), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another tag, line {self.getpos()[0]}"

    def handle_data(self, data: str) -> None:
        match self._open[-1:]:
            case ["script"]:
                self.scripts.append(data)
            case ["style"]:
                self.styles.append(data)
            case _:
                self.text.append(data)
                if {"h1", "h2", "h3"} & set(self._open):
                    level, before = self.headings[-1]
                    self.headings[-1] = (level, before + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if attributes.get("id")]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def specs(self) -> list[dict[str, Any]]:
        """What is inside the figures' script elements."""
        return [json.loads(script) for script in self.scripts if script.startswith('{"height"')]


def check(page: Page) -> None:
    """What holds for every page."""
    assert page.doctype == "doctype html"
    assert page.all("html")[0]["lang"] == "en"
    assert [attributes.get("charset") for attributes in page.all("meta")].count("utf-8") == 1

    assert [level for level, _ in page.headings].count(1) == 1
    levels = [level for level, _ in page.headings]
    assert all(after <= before + 1 for before, after in pairwise(levels)), "a level is skipped"
    assert all(title.strip() for _, title in page.headings)

    assert [name for name, times in Counter(page.ids).items() if times > 1] == []
    for link in page.all("a"):
        assert link["href"].startswith("#"), f"{link['href']} leads out of the page"
        assert link["href"][1:] in page.ids
    for section in page.all("section"):
        assert section["aria-labelledby"] in page.ids

    figures = [attributes for attributes in page.all("figure") if "data-plot" in attributes]
    assert len(page.specs()) == len(figures)
    # plotly.js and our own script, and nothing that came from data
    assert len(page.all("script")) == 2 + len(figures)
    images = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(images) == len(figures)
    assert all(len(image["aria-label"]) > 20 for image in images)
    for spec in page.specs():
        assert spec["views"]
        assert all(view["data"] for view in spec["views"])
    assert all(attributes.get("scope") for attributes in page.all("th"))

    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img", "audio", "video", "source")
        assert not {"src", "srcset", "data", "action", "poster", "background"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes), f"<{tag}> runs code: {attributes}"
    assert all("url(" not in style and "@import" not in style for style in page.styles)
    policies = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'")
    assert "http" not in policies[0]


def test_a_run_has_every_section_and_its_numbers(gate_run):
    page = Page(write_report(gate_run))
    check(page)
    assert set(SECTIONS) <= set(page.ids)
    metrics = json.loads((gate_run / "metrics.json").read_text())["metrics"]
    for name in ("auc", "logloss", "window_auc", "ece"):
        assert fixed(metrics[name]) in page.words
    for name in ("price", "dwell_seconds", "user_age"):
        assert name in page.words
    figures = [attributes["id"] for attributes in page.all("figure")]
    assert figures == [
        "stream-auc",
        "stream-logloss",
        "reliability",
        "rate-lines",
        "evidence-odds",
        "drift-map",
        "drift-lines",
        "missing-map",
        "knots-map",
        "knots-lines",
        "response",
        "encoding-map",
        "embedding-map",
        "modulation-map",
        "throughput-lines",
    ]


def test_segments_are_drawn_from_where_they_begin_to_where_they_end(gate_run):
    page = Page(write_report(gate_run))
    rows = json.loads((gate_run / "monitor.json").read_text())["rows"]
    named = [attributes["id"] for attributes in page.all("figure")]
    specs = dict(zip(named, page.specs(), strict=True))
    for name in ("drift-map", "missing-map"):
        assert specs[name]["views"][0]["data"][0]["x"] == [0, *rows]
    for name in ("drift-lines", "rate-lines", "throughput-lines"):
        view = specs[name]["views"][0]
        assert view["data"][0]["x"] == [(one + other) / 2 for one, other in pairwise([0, *rows])]
        assert view["layout"]["xaxis"]["range"] == [0, rows[-1]]


def test_a_stream_that_is_shorter_than_its_window_has_no_metrics_of_one(short_run, gate_run):
    short, long = (Page(write_report(run)).words for run in (short_run, gate_run))
    assert "AUC, last 1k" in long
    assert "AUC, last 1k" not in short.partition("In short")[0]
    assert "no row after the first ones to compare with them" in short
    assert "the stream is shorter than a segment" in short


def test_it_is_one_file_of_a_sane_size_beside_the_run(gate_run):
    before = set(gate_run.iterdir()) - {gate_run / "report.html"}
    path = write_report(str(gate_run))
    assert path == gate_run / "report.html"
    assert set(gate_run.iterdir()) - {path} == before
    assert path.stat().st_size < 2e6
    (packed,) = re.findall(r'<script id="plotly" type="text/plain">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert b"plotly.js (cartesian - minified) v" in gzip.decompress(base64.b64decode(packed))[:100]
    first = path.read_bytes()
    assert write_report(gate_run).read_bytes() == first


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("fe_run", ["This method keeps no knots."]),
        ("numbers_only_run", []),
        ("categories_only_run", ["There is no numerical feature"]),
        ("short_run", ["too few records"]),
        ("one_class_run", ["auc is not defined: labels of one class only"]),
        ("odd_columns_run", []),
        ("wide_run", ["Only the first 60 of 75 are shown."]),
        ("dlrm_run", ["This method has no vector per feature."]),
    ],
)
def test_what_a_run_lacks_is_said(request, run, said):
    page = Page(write_report(request.getfixturevalue(run)))
    check(page)
    assert set(SECTIONS) <= set(page.ids)
    for sentence in said:
        assert sentence in page.words


@pytest.mark.parametrize("lost", ["monitor.json", "history.json", "model"])
def test_a_run_without_an_optional_part(gate_run, tmp_path, lost):
    for path in gate_run.iterdir():
        if path.name not in (lost, "report.html"):
            (tmp_path / path.name).symlink_to(path)
    page = Page(write_report(tmp_path))
    check(page)
    assert set(SECTIONS) <= set(page.ids)


def test_a_folder_without_a_run_is_an_error_in_a_sentence(gate_run, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run in .*: it has no config\.json"):
        write_report(tmp_path)
    (tmp_path / "config.json").symlink_to(gate_run / "config.json")
    with pytest.raises(FileNotFoundError, match=r"no run in .*: it has no metrics\.json"):
        write_report(tmp_path)
    (tmp_path / "metrics.json").write_text('{"rows": 1')
    with pytest.raises(ValueError, match=r"metrics\.json is not whole, valid JSON"):
        write_report(tmp_path)


def test_the_page_opens_with_what_a_person_wants_to_know(gate_run):
    page = Page(write_report(gate_run))
    assert "gives the click the higher score" in page.words
    assert "clicks" in page.words
    assert "The model has taken only 20 steps" in page.words
    assert f"daes predict {gate_run} rows.parquet --out scores.parquet" in page.words
    assert "daes-gate DAES, gate, as published" in page.words
    first = next(name for name in page.ids if name in SECTIONS)
    assert first == "summary"


def test_wide_tables_have_a_search_box_and_stay_small(wide_run):
    path = write_report(wide_run)
    page = Page(path)
    check(page)
    assert [field["type"] for field in page.all("input")].count("search") > 1
    assert path.stat().st_size < 2e6


def test_names_from_data_stay_text(hostile_run, hostile_names):
    page = Page(write_report(hostile_run))
    check(page)
    for name in hostile_names:
        assert name in "".join(page.text)
    for script in page.scripts:
        if script.startswith('{"height"'):
            assert "<" not in script
    # plotly.js reads some tags in the texts of a plot; there names are escaped once more
    drawn = json.dumps([view["layout"] for spec in page.specs() for view in spec["views"]])
    assert "&lt;script" in drawn
    assert "<script" not in drawn


def test_a_comparison_has_its_table_and_its_curves(comparison_dir):
    page = Page(write_report(comparison_dir))
    check(page)
    assert {"result", "curves", "setup"} <= set(page.ids)
    table = json.loads((comparison_dir / "comparison.json").read_text())
    for row in table["rows"]:
        assert row["label"] in page.words
        for measure in row["measures"].values():
            assert fixed(measure["mean"]) in page.words
    figures = [attributes["id"] for attributes in page.all("figure")]
    assert figures == ["results-dots", "curves-auc", "curves-logloss"]
    lines = page.specs()[1]["views"][0]["data"]
    assert {line["legendgroup"] for line in lines} == {"fe", "ple", "daes"}


def test_the_verdict_is_what_the_numbers_say(comparison_dir):
    rows = json.loads((comparison_dir / "comparison.json").read_text())["rows"]
    page = Page(write_report(comparison_dir))
    for backbone in ("fnn", "lr"):
        here = {row["label"]: row["measures"] for row in rows if row["backbone"] == backbone}
        best = max(here, key=lambda label: here[label]["half_auc"]["mean"])
        least = min(here, key=lambda label: here[label]["half_logloss"]["mean"])
        assert f"On {backbone}, {best} has the highest AUC" in page.words
        assert f"the lowest LogLoss, {fixed(here[least]['half_logloss']['mean'])}" in page.words
        place = 1 + sum(row["half_auc"]["mean"] > here["daes"]["half_auc"]["mean"] for row in here.values())
        if place > 1:
            assert f"daes is number {place} of 3" in page.words


def test_the_curves_of_a_comparison_are_means_over_seeds(comparison_dir):
    cells = json.loads((comparison_dir / "comparison.json").read_text())["trials"]
    page = Page(write_report(comparison_dir))
    auc = next(spec for spec in page.specs() if spec["views"][0]["label"].startswith("last"))
    view = next(view for view in auc["views"] if view["label"] == "since the start · fnn")
    drawn = {trace["legendgroup"]: trace["y"] for trace in view["data"]}
    for label in ("fe", "ple", "daes"):
        runs = [cell["history"]["auc"] for cell in cells if (cell["label"], cell["backbone"]) == (label, "fnn")]
        assert len(runs) == 2
        expected = [(a + b) / 2 for a, b in zip(*runs, strict=True)]
        np.testing.assert_allclose(drawn[label], expected, rtol=1e-5)
    against = next(view for view in auc["views"] if "against the mean · fnn" in view["label"])
    main = [trace["y"] for trace in against["data"] if "hovertemplate" in trace]
    np.testing.assert_allclose(np.sum(main, axis=0), 0.0, atol=1e-5)


def test_several_comparisons_on_one_page(comparison_dir, gate_run, tmp_path):
    first = compared_in(comparison_dir, run_dir=gate_run, ceiling={"auc": 0.9, "half_auc": 0.91234})
    second = compared_in(comparison_dir)
    second.table.about["data"]["name"] = "another <one>"
    page = Page(write_comparisons(tmp_path / "all.html", "Two", "of a kind", [first, second]))
    check(page)
    assert "0.9123" in page.words
    assert "best possible" in page.words
    assert page.words.count("another <one>") >= 3
    assert sum(name.endswith("drift-map") for name in page.ids) == 1


def test_a_rival_counts_once_however_many_columns_show_it(tmp_path):
    from daes.experiments.compare import compare
    from daes.training.config import TrainConfig

    methods, train = ["fe", "ftrl"], TrainConfig(batch_size=200)
    found = compare("adstream:600", methods=methods, backbones=["fnn", "lr"], seeds=1, train=train, out=tmp_path)
    assert len(found.finished) == 4
    trained, seconds = work_facts([compared_in(tmp_path)])
    assert trained == ("Models trained", "3")
    assert seconds[1] == duration(sum({result.key: result.seconds for result in found.finished}.values()))


def test_failed_cells_are_listed(comparison_dir, tmp_path):
    content = json.loads((comparison_dir / "comparison.json").read_text())
    kept = [cell for cell in content["trials"] if (cell["label"], cell["backbone"]) != ("ple", "fnn")]
    failure = {"label": "ple", "backbone": "fnn", "seed": 0, "error": "ValueError: <too> bad"}
    content |= {"trials": kept, "failures": [failure]}
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    page = Page(write_report(tmp_path))
    check(page)
    assert "ValueError: <too> bad" in "".join(page.text)


def test_the_papers_protocol_is_drawn_by_epoch(paper_comparison_dir):
    page = Page(write_report(paper_comparison_dir))
    check(page)
    figures = [attributes["id"] for attributes in page.all("figure")]
    assert figures == ["results-dots", "epochs-valid_auc", "epochs-valid_logloss"]


def test_a_folder_without_a_comparison_is_an_error_in_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no comparison in .*: it has no comparison\.json"):
        compared_in(tmp_path)
    (tmp_path / "comparison.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match=r'must have "format": "daes\.comparison"'):
        write_report(tmp_path)
