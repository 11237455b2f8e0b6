"""The options of live streams, which have no end."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan
from typing import TYPE_CHECKING, Any

import typer

from daes.cli.groups import flag
from daes.cli.options import Kind, number, one_of, option_field, whole_number
from daes.cli.settings import given_options
from daes.training.config import OVERFLOW

if TYPE_CHECKING:
    from daes.stream.schema import Schema
    from daes.training.label_join import LateLabels

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_live = partial(option_field, panel="Live streams")


def seconds(text: str) -> float:
    """A duration in seconds; nan if the text is not one.

    >>> seconds("30m"), seconds("1.5h"), seconds("20"), seconds("soon")
    (1800.0, 5400.0, 20.0, nan)
    """
    length, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        return float(length) * _UNITS[unit]
    except ValueError:
        return nan


def length_of_time(text: str) -> str:
    """Check a duration and return it unchanged."""
    if not 0 < seconds(text) < inf:
        raise typer.BadParameter(f"a positive number with s, m, h or d, such as 30m, is needed, got {text}")
    return text


@dataclass(frozen=True)
class Live:
    """How to read a live stream."""

    follow: bool = _live(
        "DATA is a folder or a glob in which files keep arriving: wait for more. A file must be complete when it "
        "gets its name; hidden files and .tmp are ignored.",
        "--follow",
        default=False,
    )
    order: str | None = _live(
        "Order of the files that exist at the start: name, or time (oldest first).",
        of=one_of("name", "time", metavar="BY"),
        show_default="name",
    )
    max_wait: float | None = _live(
        "Maximum time a row waits for its batch to fill.", of=number(above=0, metavar="SECONDS"), show_default="1"
    )

    labels: str | None = _live(
        "Labels are messages of this topic, such as nats://HOST/CLICKS: each means a click on the row with its "
        "key, unless it has a label field.",
        metavar="TOPIC",
    )
    key: str | None = _live("The field that matches labels with rows.", metavar="NAME")
    label_window: str | None = _live(
        "Maximum delay between a row and its label, such as 90s, 30m or 2h; then the row is learned from.",
        of=Kind(length_of_time, "TIME"),
        show_default="30m",
    )
    max_pending: int = _live(
        "Maximum number of rows in memory that wait for their labels.", default=1_000_000, of=whole_number(1, "ROWS")
    )
    overflow: str = _live(
        "If more wait: no-click (learn from the oldest row now, with the label it has), drop (leave it out) or "
        "spill (move the features of the newest rows to disk).",
        default="no-click",
        of=one_of(*OVERFLOW, metavar="POLICY"),
    )

    @property
    def late_labels(self) -> "LateLabels | None":
        """Where labels that are not in the rows come from; None if they are in the rows."""
        if self.labels is None or self.key is None:
            return None
        from daes.training.label_join import LateLabels

        return LateLabels(self.labels, self.key, seconds(self.label_window or "30m"), self.max_pending, self.overflow)

    def problems(self) -> Iterator[str]:
        """What is wrong with the combination of options."""
        needs = ("key", "label_window", "max_pending", "overflow")
        if self.labels is None and any(getattr(self, name) != getattr(Live, name) for name in needs):
            yield f"{', '.join(map(flag, needs))} need --labels TOPIC, the topic of the labels"
        if self.labels is not None and self.key is None:
            yield "--labels needs --key NAME, the field that matches labels with rows"

    def options(self) -> dict[str, Any]:
        """Options of `Dataset.open`."""
        found = given_options({"order": self.order, "max_wait": self.max_wait, "key": self.key})
        return {"follow": True, **found} if self.follow else found


def joined_schema(schema: "Schema", key: str, label: str | None = None) -> "Schema":
    """The schema of rows whose labels are other messages: neither the key nor the label, called click, is a feature."""
    label = label or schema.label or "click"
    numerical, categorical = (
        tuple(name for name in names if name not in (key, label)) for names in (schema.numerical, schema.categorical)
    )
    return replace(schema, label=label, numerical=numerical, categorical=categorical)
