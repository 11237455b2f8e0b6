"""The templates: everything from data is escaped, every kind of block is drawn."""

import math
from typing import get_args

import jinja2
import numpy as np
import pytest

from daes.report.content import Block, Details, Grid, Heading, Notes, Page, Paragraph, Section
from daes.report.figures import Figure, Key, View
from daes.report.rendering import compact_json, environment, render
from daes.table import Cell, Table

VIEWS = [View("<one>", [{"x": [1]}], {}), View("two", [{"x": [2]}], {})]
TABLE = Table(("name", "value"), [("<i>", Cell("1.0", strong=True, note="± 0.1", colour="c1"))], caption="a < b")
FIGURE = Figure("f", "A & B", VIEWS, alt='what "it" shows', keys=[Key("a<", "a<", "c1"), Key("b", "b", "c2")])
BLOCKS = {
    Paragraph("1 < 2", "said"): '<p class="said">1 &lt; 2</p>',
    Paragraph("plain"): "<p>plain</p>",
    Heading("a & b"): "<h3>a &amp; b</h3>",
    Notes(("<one>", "two")): '<ul class="notes"><li>&lt;one&gt;</li><li>two</li></ul>',
}


def html(block, prefix=""):
    return str(environment().get_template("blocks.html").module.block(block, prefix))


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


def test_every_kind_of_block_has_markup():
    shown = {type(block) for block in (*BLOCKS, TABLE, Details("more", TABLE), FIGURE, Grid([FIGURE]))}
    assert shown == set(get_args(Block))


def test_a_name_that_the_templates_misspell_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ page.titel }}").render(page=Page("", "", ()))


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
