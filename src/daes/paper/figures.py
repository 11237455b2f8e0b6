"""Style of the figures: colours for colour-blind readers, labels at the lines."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daes.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure

# Distinguishable for colour-blind readers (after Okabe and Ito).
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, BLACK, GREY = "#56b4e9", "#cc79a7", "#222222", "#8a8a8a"
CYCLE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)

_WIDTH = 9.6
_COLOURS = 255
_OCTREE = 2  # the method of Pillow that keeps colours of few pixels
_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#333333",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "daes",
}


@contextmanager
def style() -> Iterator[None]:
    """The context in which to draw."""
    require("matplotlib").use("Agg")
    with require("matplotlib.pyplot").rc_context(_STYLE):
        yield


def panels(rows: int, columns: int, height: float, **options: Any) -> tuple["Figure", Any]:
    """A figure and its axes, as from `matplotlib.pyplot.subplots`, but not in pyplot's list of open figures."""
    figure = require("matplotlib.figure").Figure(figsize=(_WIDTH, height), layout="constrained")
    require("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, **options)


def headline(figure: "Figure", title: str, subtitle: str) -> None:
    """Title and subtitle at the upper left of a figure."""
    # The layout reserves both lines for the title; the subtitle is then written into the lower one in lighter type.
    figure.suptitle(f"{title}\n ", x=0.01, ha="left", va="top", fontsize=11, fontweight="bold")
    inch = 1 / figure.get_figheight()
    figure.text(0.01, 1 - 0.25 * inch, subtitle, ha="left", va="top", fontsize=8.5, color="#555555")


def legend(figure: "Figure", *marks: Mapping[str, Any]) -> None:
    """A legend below the panels; each mark has a label and options of a line, which is black unless they say so."""
    line = require("matplotlib.lines").Line2D
    handles = [line([], [], **{"color": BLACK, **mark}) for mark in marks]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def at_end(axes: "Axes", x: float, y: float, text: str, colour: str | None, **options: Any) -> None:
    """A label to the right of a line's last point."""
    defaults: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
    axes.annotate(text, (x, y), color=colour, annotation_clip=False, **{**defaults, **options})


def label_ends(axes: "Axes", ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Labels at the ends of lines, moved up where they would overlap."""
    low, high = axes.get_ylim()
    least = 0.075 * (high - low)
    height = float("-inf")
    for x, y, text, colour in sorted(ends, key=lambda end: end[1]):
        height = max(y, height + least)
        at_end(axes, x, height, text, colour)


def name_rows(axes: "Axes", names: Sequence[str], above: float = 0.5, below: float = 0.5) -> None:
    """One row per name, from the top, with margins above and below."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 1 + below, -above)
    axes.grid(axis="y", visible=False)


def save(figure: "Figure", path: Path) -> Path:
    """Write a PNG or SVG, depending on the ending; the same figure gives the same bytes."""
    if path.suffix.lower() == ".svg":
        figure.savefig(path, metadata={"Date": None, "Creator": None})
    elif path.suffix.lower() == ".png":
        raw = BytesIO()
        figure.savefig(raw, format="png", metadata={"Software": None})
        # With a palette the file is a third of the size; lines and text need no more colours.
        image = require("PIL.Image").open(raw).convert("RGB")
        image.quantize(_COLOURS, method=_OCTREE, dither=0).save(path, optimize=True)
    else:
        raise ValueError(f"a figure must end in .png or .svg, got {path}")
    return path
