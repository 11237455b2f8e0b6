"""Heat maps as plain data for plotly.js."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daes.report.figures import Floats, Layout, Trace, named, numbers


@dataclass(frozen=True)
class HeatMap:
    """A heat map of z over names (one per row, from the top) and x."""

    names: Sequence[str]
    x: ArrayLike
    z: ArrayLike
    measure: str
    x_axis: Layout
    scale: str = "sequential"
    limits: tuple[float, float] | None = None
    form: str = ".3f"
    percent: bool = False
    row_pixels: int = 22

    @property
    def height(self) -> int:
        """The height in pixels of the rows and the axis below them."""
        return max(170, min(self.row_pixels * len(self.names), 1400) + 70)


def heat_map(made: HeatMap) -> tuple[list[Trace], Layout]:
    """A heat map; NaN is left blank. `narrowtext` are the names for narrow screens."""
    unit = 100.0 if made.percent else 1.0
    z = unit * np.asarray(made.z, dtype=np.float64)
    limits = tuple(unit * limit for limit in made.limits) if made.limits else _limits(z, made.scale)
    suffix = "\u00a0%" if made.percent else ""
    trace = {
        "type": "heatmap",
        "x": numbers(made.x),
        "y": list(range(len(made.names))),
        "z": z.tolist(),
        "zmin": limits[0],
        "zmax": limits[1],
        "colorscale": f"@{made.scale}",
        "xgap": 0,
        "ygap": 1,
        "hovertemplate": f"%{{y}}<br>{made.x_axis['title']['text']} %{{x}}<br>"
        f"{made.measure} %{{z:{made.form}}}{suffix}<extra></extra>",
        "hoverongaps": False,
        "colorbar": {"title": {"text": made.measure, "side": "right", "font": {"size": 11}}, "ticksuffix": suffix},
    }
    layout: Layout = {
        "hovermode": "closest",
        "xaxis": {**made.x_axis, "showgrid": False},
        "yaxis": {
            "autorange": "reversed",
            "showgrid": False,
            "tickvals": list(range(len(made.names))),
            "ticktext": [named(name) for name in made.names],
            "narrowtext": [named(name, 14) for name in made.names],
        },
    }
    return [trace], layout


def _limits(z: Floats, scale: str) -> tuple[float, float]:
    finite = z[np.isfinite(z)]
    # Extremes of a heavy tail would leave no colour for the rest.
    most = float(np.quantile(np.abs(finite), 0.95)) if finite.size else 0.0
    most = most or (float(np.abs(finite).max()) if finite.size else 0.0)
    most = most or 1.0
    return (-most, most) if scale == "diverging" else (0.0, most)
