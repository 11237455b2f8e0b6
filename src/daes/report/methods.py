"""Explanations of methods, backbones and measures."""

import re
from collections.abc import Iterable, Sequence
from inspect import getdoc
from typing import Any

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.experiments.rivals import RIVALS
from daes.report.content import Block, Heading, Paragraph
from daes.report.run_record import RunRecord
from daes.table import Table

MEASURES = (
    ("AUC", "How often a click has a higher score than a row without a click; 0.5 is guessing, 1 is perfect."),
    ("LogLoss", "The mean of −log of the probability given to what happened, in nats; lower is better."),
    ("Normalised entropy", "LogLoss over that of always predicting the click rate; above 1 is worse than no model."),
    ("Calibration", "Mean prediction over mean label; at 1.1 the model predicts 10 % too many clicks."),
    ("ECE", "Expected calibration error: how far click rates are from predictions, bin by bin, on average."),
    ("Importance", "The rise of LogLoss when a column’s values are permuted among the last rows."),
    ("Evidence", "How far past clicks move the log odds, column by column: the root mean square over the rows."),
    (
        "PSI",
        "Population stability index: how far a column’s distribution is from its first rows; above 0.25 is a shift. "
        "The list of columns has the highest along the stream, and a dash where too few values tell drift from chance.",
    ),
    ("KS", "Kolmogorov–Smirnov: the largest gap between two distribution functions, 0 to 1."),
)
"""Every measure of a run's page."""


def run_methods(run: RunRecord) -> list[Block]:
    """The method and the backbone of a run, and every measure of the page."""
    model = run.config.get("model", {})
    blocks = explained([model.get("embedding")] if run.schema.get("numerical") else [], [model.get("backbone")])
    if model.get("evidence"):
        blocks += [
            Heading("Evidence"),
            Paragraph(
                "Counts of past clicks for each value are a further input: the log odds of a click against the click "
                "rate so far, and how often a category was seen. They are counted, not learned."
            ),
        ]
    return [*blocks, Heading("Measures"), Table(("measure", "meaning"), MEASURES, left=frozenset({0, 1}))]


def explained(methods: Iterable[str], backbones: Iterable[str]) -> list[Block]:
    """A table of methods and backbones, without those that are not registered."""
    rows: list[Sequence[str]] = []
    used = list(dict.fromkeys(methods))
    for registry, names in ((METHODS, used), (RIVALS, used), (BACKBONES, dict.fromkeys(backbones))):
        for name in names:
            if name in registry:
                entry: Any = registry[name]
                rows.append((name, entry.title, first_paragraph(entry.cls), str(entry.reference or "–")))
    head = ("name", "title", "what it does", "reference")
    return [Table(head, rows, left=frozenset({0, 1, 2, 3}))] if rows else []


def first_paragraph(cls: type) -> str:
    """The first paragraph of a docstring as plain text.

    >>> first_paragraph(METHODS["efd"].cls)[:30]
    'Equal-frequency discretisation'
    """
    paragraph = (getdoc(cls) or "").split("\n\n")[0]
    return re.sub(r"[`*]", "", " ".join(paragraph.split()))
