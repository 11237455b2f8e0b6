"""The templates: everything from data is escaped, every kind of block is drawn."""

import math
import re
from typing import get_args

import jinja2
import numpy as np
import pytest

from daes.report.content import (
    Block,
    Command,
    Details,
    Grid,
    Heading,
    Notes,
    Page,
    Paragraph,
    Ranking,
    Section,
    WarningBox,
)
from daes.report.features import ColumnSummary
from daes.report.figures import Figure, Line, View
from daes.report.rendering import compact_json, render, template_environment
from daes.table import Cell, Table

VIEWS = [View("<one>", [{"x": [1]}], {}), View("two", [{"x": [2]}], {})]
TABLE = Table(("name", "value"), [("<i>", Cell("1.0", strong=True, note="± 0.1", colour="c1"))], caption="a < b")
FIGURE = Figure(
    "f", "A & B", VIEWS, alt='what "it" shows', keys=[Line("a<", "a<", colour="c1"), Line("b", "b", colour="c2")]
)
BLOCKS = {
    Paragraph("1 < 2", "said"): '<p class="said">1 &lt; 2</p>',
    Paragraph("plain"): "<p>plain</p>",
    Heading("a & b"): "<h3>a &amp; b</h3>",
    Notes(("<one>", "two")): '<ul class="notes"><li>&lt;one&gt;</li><li>two</li></ul>',
}


RANKING = Ranking(
    [
        ColumnSummary("<b>price", "numerical", rise=0.02, error=0.001, missing=0.5, response=np.array([0.1, 0.3])),
        ColumnSummary("city", "categorical", rise=0.005, error=0.001, distinct=7.0),
        ColumnSummary("rest", "numerical"),
    ],
    hidden=3,
)
WARNINGS, COMMAND = WarningBox(["a < b"]), Command("Go on:", "daes train <data>")


def html(block, prefix=""):
    return str(template_environment().get_template("blocks.html").module.block(block, prefix))


@pytest.mark.parametrize("block", BLOCKS)
def test_texts(block):
    assert html(block).strip() == BLOCKS[block]


def test_a_table():
    found = html(TABLE)
    assert "<caption>a &lt; b</caption>" in found
    assert '<th scope="col" class="left">name</th><th scope="col">value</th>' in found
    assert '<th scope="row" class="left">&lt;i&gt;</th>' in found
    dot = '<i class="dot" style="background:var(--c1)"></i>'
    assert f"<td>{dot}<strong>1.0</strong> <small>± 0.1</small></td>" in "".join(found.split("\n"))
    assert html(Details("more", TABLE)).startswith("<details><summary>more</summary>")


def test_a_figure_has_its_choice_its_keys_and_its_table():
    found = html(FIGURE, "x-")
    assert '<figure data-plot id="x-f">' in found
    assert "<option>&lt;one&gt;</option><option>two</option>" in found
    assert 'data-group="a&lt;"' in found
    assert 'aria-label="what &#34;it&#34; shows"' in found
    assert "<details>" not in found
    plain = html(Figure("f", "A", VIEWS[:1], alt="one", table=TABLE))
    assert "<select" not in plain
    assert '<div class="keys' not in plain
    assert "<summary>The numbers</summary>" in plain
    assert html(Grid([FIGURE, FIGURE])).count("<figure") == 2


def test_a_ranking_has_bars_and_responses_and_says_what_it_leaves_out():
    found = html(RANKING)
    assert 'data-choose="&lt;b&gt;price">&lt;b&gt;price</a>' in found
    assert re.findall(r'style="width:([\d.]+)%"', found) == ["100.0", "25.0"]
    assert found.count("<svg") == 1
    assert 'd="M0 23L100 1"' in found
    assert "<td>50.0 %</td>" in found
    assert "3 further columns are in importance.json." in found
    assert "data-find" not in found
    many = Ranking([ColumnSummary(str(place), "numerical") for place in range(21)])
    assert html(many).count("data-find") == 1
    assert "further columns" not in html(many)


def test_warnings_and_commands():
    assert "<li>a &lt; b</li>" in html(WARNINGS)
    assert "<code>daes train &lt;data&gt;</code>" in html(COMMAND)


def test_every_kind_of_block_has_markup():
    others = (TABLE, Details("more", TABLE), FIGURE, Grid([FIGURE]), RANKING, WARNINGS, COMMAND)
    shown = {type(block) for block in (*BLOCKS, *others)}
    assert shown == set(get_args(Block))


def test_a_name_that_the_templates_misspell_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        template_environment().from_string("{{ page.titel }}").render(page=Page("", "", ()))


def test_text_has_no_control_characters():
    page = render(Page("a\x00b\x1b[31m", "<lead>", [Section("s", "S", [Paragraph("c\x07d")])]))
    assert "<title>a\ufffdb\ufffd[31m</title>" in page
    assert '<p class="lead">&lt;lead&gt;</p>' in page
    assert "<p>c\ufffdd</p>" in page


def test_sections_of_a_group_have_ids_of_their_own():
    page = render(Page("t", "l", [Section("s", "S", [FIGURE], group) for group in ("", "ad & stream")]))
    assert '<section id="s"' in page
    assert '<section id="ad-stream-s"' in page
    assert '<figure data-plot id="ad-stream-f">' in page
    assert page.count('<li class="group">ad &amp; stream</li>') == 1


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, np.float64("nan")])
def test_json_has_null_for_what_is_no_number(value):
    assert compact_json([value, np.array([value, 1.0])]) == "[null,[null,1]]"
