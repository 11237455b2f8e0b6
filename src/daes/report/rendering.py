"""Renders a page as a single HTML file that contains everything."""

import base64
import gzip
import json
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any

import daes
from daes.extras import require
from daes.formatting import count, fixed, percent
from daes.report.content import Page

# Control characters such as NUL are not allowed in HTML.
_CONTROL = dict.fromkeys({*range(32)} - {ord("\t"), ord("\n")}, "\ufffd")


def render(page: Page) -> str:
    """The page as HTML."""
    html: str = (
        template_environment().get_template("page.html").render(page=page, version=daes.__version__, plotly=plotly())
    )
    return html


@cache
def plotly() -> str:
    """The JavaScript library that draws the plots, compressed and in base64; page.js unpacks it."""
    code = files("daes.report").joinpath("vendor", "plotly-cartesian.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, mtime=0)).decode()


@cache
def template_environment() -> Any:
    """The templates; everything that comes from data is escaped."""
    jinja2 = require("jinja2")
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("daes.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value.translate(_CONTROL) if type(value) is str else value,
    )
    found.filters |= {"fixed": fixed, "percent": percent, "count": count}
    found.filters["kind"] = lambda block: type(block).__name__
    found.policies["json.dumps_function"] = lambda value, **_: compact_json(value)
    return found


def compact_json(value: Any) -> str:
    """JSON in which NaN and ±inf are null and floats have six digits.

    >>> compact_json({"x": [float("nan"), 1 / 3, 2.0]})
    '{"x":[null,0.333333,2]}'
    """
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        if not isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.6g}")
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value
