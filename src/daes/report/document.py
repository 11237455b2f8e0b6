"""The HTML document around the sections: one file with everything in it."""

from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import daes
from daes.extras import require
from daes.report.figures import Figure
from daes.report.markup import section, text

# Nothing may be fetched from anywhere: the browser itself refuses whatever the page might ask for.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


class Section(NamedTuple):
    """A part of the page: its anchor, its heading, its content, and what it is about where a page is about several."""

    name: str
    title: str
    content: str
    group: str = ""


def document(title: str, lead: str, top: str, sections: Sequence[Section]) -> str:
    """The page as one text. `top` stands between the heading and the sections."""
    assets = files("daes.report") / "assets"
    body = "\n".join(section(part.name, part.title, part.content, group=part.group) for part in sections)
    script = require("plotly.offline").get_plotlyjs()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="daes {text(daes.__version__)}">
<title>{text(title)}</title>
<style>
{(assets / "page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<h1>{text(title)}</h1>
<p class="lead">{text(lead)}</p>
{top}
<noscript><p>The plots need JavaScript; the numbers are in the tables.</p></noscript>
</header>
<nav aria-label="Sections"><ul>{_links(sections)}</ul></nav>
<main>
{body}
</main>
<footer><p>Made by daes {text(daes.__version__)}. This file holds all it shows and asks for nothing else.</p></footer>
<script>{script}</script>
<script>
{(assets / "page.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _links(sections: Sequence[Section]) -> str:
    links = []
    for place, part in enumerate(sections):
        if part.group and (place == 0 or sections[place - 1].group != part.group):
            links.append(f'<li class="group">{text(part.group)}</li>')
        links.append(f'<li><a href="#{text(part.name)}">{text(part.title)}</a></li>')
    return "".join(links)


def grid(figures: Sequence[Figure | None]) -> str:
    """Figures side by side where there is room."""
    shown = stack(figures)
    return f'<div class="grid">\n{shown}\n</div>' if shown else ""


def stack(figures: Sequence[Figure | None], ids: str = "") -> str:
    """Figures one below the other; `ids` comes before their names, where a page has several of a kind."""
    return "\n".join(figure.html(ids) for figure in figures if figure)
