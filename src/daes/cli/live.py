"""The options of streams without an end."""

from dataclasses import dataclass
from typing import Annotated, Any

from daes.cli.settings import given_options, option


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

    def options(self) -> dict[str, Any]:
        """Options of `Dataset.open`."""
        found = given_options({"order": self.order, "max_wait": self.max_wait})
        return {"follow": True, **found} if self.follow else found
