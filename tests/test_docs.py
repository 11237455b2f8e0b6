"""The documentation: its links, its navigation, the site, and the helpers that make it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"]
FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1`*\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)[^`].*?\1")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<(?:img|a)\s[^>]*?(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$", re.MULTILINE)
GENERATED = {"benchmarks.md", "changelog.md", "contributing.md", "examples.md"}
"""Pages that docs/hooks.py makes of other files; notebooks too are pages."""


def documents():
    return [*(ROOT / name for name in OUTSIDE), *sorted(DOCS.glob("**/*.md"))]


def without_code(text):
    return CODE.sub("", FENCED.sub("", text))


def links(text):
    return [first or second for first, second in LINK.findall(without_code(text))]


def anchors(text):
    """The anchors of the headings, as MkDocs and GitHub make them of plain words."""
    found = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).strip()
        slug = re.sub(r"\s", "-", words)
        found |= {slug, re.sub(r"-+", "-", slug)}
    return found


def broken_links(path, text):
    """The relative links of a document that lead nowhere."""
    broken = []
    for link in links(text):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            broken.append(link)
        elif anchor and file.suffix == ".md":
            known = anchors(text if file == path else file.read_text(encoding="utf-8"))
            if anchor not in known:
                broken.append(link)
    return broken


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    assert broken_links(path, path.read_text(encoding="utf-8")) == []


def rows_outside_tables(text):
    """Rows of tables that are shown as text: a table begins with a header and a line of dashes."""
    lines = ["", *FENCED.sub("", text).splitlines(), ""]
    starts = [place for place, line in enumerate(lines) if line[:1] == "|" and lines[place - 1][:1] != "|"]
    return [lines[place] for place in starts if not re.fullmatch(r"\|[\s:|-]*-[\s:|-]*", lines[place + 1])]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_tables_are_not_interrupted(path):
    assert rows_outside_tables(path.read_text(encoding="utf-8")) == []


def test_finds_an_interrupted_table():
    assert rows_outside_tables("| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n| 3 | 4 |\n") == ["| 3 | 4 |"]


class TestLinkChecker:
    @pytest.mark.parametrize("link", ["nosuch.md", "page.md#nosuch", "#nosuch", "../nosuch/x.png", "nosuch.md#here"])
    def test_finds_what_leads_nowhere(self, tmp_path, link):
        page = tmp_path / "page.md"
        page.write_text(f"# Here and `there`\n\nSee [this]({link}).\n")
        assert broken_links(page, page.read_text()) == [link]

    @pytest.mark.parametrize("link", ["page.md", "page.md#here-and-there", "#here-and-there", "https://example.org/x"])
    def test_accepts_what_is_there(self, tmp_path, link):
        page = tmp_path / "page.md"
        page.write_text(f"# Here and `there`\n\nSee [this]({link}) and ![that]({link}).\n")
        assert broken_links(page, page.read_text()) == []

    def test_reads_images_of_html_and_no_code(self, tmp_path):
        text = '# A\n\n<img src="no.png" width="9">\n\n```text\n[x](no.md)\n```\n\n`[x](no.md)` [y](gone.md)\n'
        assert broken_links(tmp_path / "page.md", text) == ["no.png", "gone.md"]


def nav_pages(entry):
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in nav_pages(value)]


def test_navigation_has_every_page_once_and_no_other():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = nav_pages(config["nav"])
    assert len(listed) == len(set(listed))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md") if "results" not in path.parts}
    notebooks = {path.relative_to(DOCS).with_suffix(".md").as_posix() for path in DOCS.glob("notebooks/*.ipynb")}
    assert set(listed) == written | notebooks | GENERATED


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "latex2mathml"):
        pytest.importorskip(package, reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]  # --quiet is not strict
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
class TestSite:
    def test_needs_no_network(self, site):
        loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
        for page in site.glob("**/*.html"):
            assert loaded.findall(page.read_text(encoding="utf-8")) == [], page.name

    def test_has_the_docstrings_with_examples_as_code(self, site):
        page = (site / "api" / "distribution.html").read_text(encoding="utf-8")
        assert 'id="daes.distribution.DistributionEstimator.quantile"' in page
        assert 'id="daes.distribution.JumpReservoir.warm_start"' in page  # inherited
        assert '<span class="gp">' in page  # a prompt in a block of code
        assert "<blockquote>" not in page

    def test_has_the_pages_made_of_other_files(self, site):
        assert "rtdl.py" in (site / "examples.html").read_text(encoding="utf-8")
        assert "estimators.py" in (site / "benchmarks.html").read_text(encoding="utf-8")
        assert 'href="benchmarks.html"' in (site / "cost.html").read_text(encoding="utf-8")
        assert 'href="why.html"' in (site / "benchmarks.html").read_text(encoding="utf-8")

    def test_has_the_defaults_of_arguments_that_are_described_together(self, site):
        page = (site / "api" / "stream.html").read_text(encoding="utf-8")
        row = r"<code>{}</code>.{{0,400}}column names; they take precedence over inference"
        assert re.search(row.format("categorical"), page, re.DOTALL)
        assert not re.search(row.format("[a-z]+, [a-z, ]+"), page, re.DOTALL)

    def test_shows_formulas(self, site):
        for page in [*site.glob("*.html"), *site.glob("methods/*.html")]:
            text = page.read_text(encoding="utf-8")
            assert "$$" not in text, page.name
            assert "formula-" not in text, page.name
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in (
            site / "methods" / "interpolated-binning.html"
        ).read_text(encoding="utf-8")

    def test_leaves_dollars_of_code_and_of_prices_alone(self, site):
        assert '<span class="gp">$ </span>daes' in (site / "index.html").read_text(encoding="utf-8")
        assert "0.05 $ per core and hour, 2.40 $ a day" in (site / "scale.html").read_text(encoding="utf-8")

    def test_has_anchors_of_all_letters(self, site):
        assert 'id="distribution-modulation-β"' in (site / "reproduction.html").read_text(encoding="utf-8")
