"""The options of streams without an end."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from daes.cli.settings import given_options, option, rows_option

if TYPE_CHECKING:
    from daes.stream.schema import Schema
    from daes.training.label_join import LateLabels

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Live:
    """How to read a stream that does not end."""

    follow: Annotated[
        bool,
        option(
            "--follow",
            panel="Live streams",
            help="DATA is a folder or a glob in which files keep arriving: wait for more. A file is complete once it "
            "has its name; hidden ones and .tmp are left alone.",
        ),
    ] = False
    order: Annotated[
        str | None,
        option(
            "--order",
            panel="Live streams",
            metavar="BY",
            help="Which of the files that are there is read first: by name or by time (the oldest).",
            show_default="name",
        ),
    ] = None
    max_wait: Annotated[
        float | None,
        option(
            "--max-wait",
            panel="Live streams",
            metavar="SECONDS",
            help="How long a row waits at most for its batch to be full.",
            show_default="1",
        ),
    ] = None

    labels: Annotated[
        str | None,
        option(
            "--labels",
            panel="Live streams",
            metavar="TOPIC",
            help="Labels come in messages of this topic, as nats://HOST/CLICKS: each means a click of the row with its "
            "key, unless it has the label itself.",
        ),
    ] = None
    key: Annotated[
        str | None,
        option("--key", panel="Live streams", metavar="NAME", help="The field by which a label finds its row."),
    ] = None
    label_window: Annotated[
        str | None,
        option(
            "--label-window",
            panel="Live streams",
            metavar="TIME",
            help="How long after its row a label may come, as 90s, 30m or 2h; a row is learned from after that.",
            show_default="30m",
        ),
    ] = None
    max_pending: Annotated[
        int, rows_option("--max-pending", "Live streams", "Rows that wait in memory for their labels at most.")
    ] = 1_000_000
    overflow: Annotated[
        str,
        option(
            "--overflow",
            panel="Live streams",
            metavar="POLICY",
            help="If more wait: no-click (learn from the oldest now, with the label it has), drop (leave it out) or "
            "spill (features of the newest go to disk).",
        ),
    ] = "no-click"

    @property
    def late_labels(self) -> "LateLabels | None":
        """Where labels come from that are not in the rows."""
        from daes.training.label_join import LateLabels

        if self.labels is None:
            if self.key is not None or self.label_window is not None:
                raise ValueError("--key and --label-window are for labels in messages of their own: --labels TOPIC")
            return None
        if self.key is None:
            raise ValueError("--labels needs --key NAME, the field by which a label finds its row")
        window = seconds(self.label_window or "30m", "--label-window")
        return LateLabels(self.labels, self.key, window, self.max_pending, self.overflow)

    def options(self) -> dict[str, Any]:
        """Options of `Dataset.open`."""
        found = given_options({"order": self.order, "max_wait": self.max_wait, "key": self.key})
        return {"follow": True, **found} if self.follow else found


def seconds(text: str, flag: str) -> float:
    """A length of time as it is written.

    >>> seconds("30m", "--label-window"), seconds("1.5h", "--label-window"), seconds("20", "--label-window")
    (1800.0, 5400.0, 20.0)
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        raise ValueError(f"{flag} must be a number with s, m, h or d, as 30m, got {text!r}") from None


def joined_schema(schema: "Schema", key: str) -> "Schema":
    """The schema of rows whose label comes in other messages: the key is no feature, and the label is called click."""
    numerical, categorical = (
        tuple(name for name in names if name != key) for names in (schema.numerical, schema.categorical)
    )
    return replace(schema, label=schema.label or "click", numerical=numerical, categorical=categorical)
