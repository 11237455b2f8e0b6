"""The datasets that `Dataset.open` knows by name. The code of a dataset is loaded when it is opened.

>>> DATASETS["flights"].usage, DATASETS["criteo"].usage
('flights', 'criteo:PATH')
"""

import re
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from daes.stream.dataset import Dataset


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset by name.

    Args:
        name: what `Dataset.open` calls it.
        title: what reports call it.
        opener: the function that makes the `Dataset`, as "module:function"; it takes the argument, if there is one,
            then options by keyword.
        argument: what follows the colon: "path" if you have to provide the data (`criteo:PATH`), "rows" if the number
            of rows may be given (`adstream:200000`), None for nothing.
    """

    name: str
    title: str
    opener: str
    argument: Literal["path", "rows"] | None = None
    simulated: bool = False

    @property
    def usage(self) -> str:
        """How to write it: `flights`, `criteo:PATH`, `adstream[:ROWS]`."""
        return self.name + {"path": ":PATH", "rows": "[:ROWS]", None: ""}[self.argument]

    def open(self, spec: str, **options: Any) -> "Dataset":
        """Open the dataset named by `spec`, such as `criteo:PATH`."""
        _, colon, given = spec.partition(":")
        argument: list[str | int] = [given] if colon else []
        if self.argument == "path" and not given:
            raise ValueError(f"{self.name} needs the path of its files, as in {self.usage}")
        if colon and self.argument == "rows":
            if not given.replace("_", "").isdigit():
                raise ValueError(f"{self.name} takes a number of rows, as in {self.name}:200000, got {spec}")
            argument = [int(given)]
        if colon and self.argument is None:
            raise ValueError(f"{self.name} takes no path, got {spec}")
        data: Dataset = resolve_name(self.opener)(*argument, **options)
        return data


DATASETS: dict[str, DatasetEntry] = {
    entry.name: entry
    for entry in (
        DatasetEntry("criteo", "Criteo", "daes.stream.datasets.criteo:open_criteo", "path"),
        DatasetEntry("automl", "AutoML", "daes.stream.datasets.automl:open_automl", "path"),
        DatasetEntry("flights", "Flights", "daes.stream.datasets.flights:open_flights"),
        DatasetEntry("adstream", "Simulated ad stream", "daes.simulation.source:open_adstream", "rows", simulated=True),
    )
}


def find_entry(what: Any) -> DatasetEntry | None:
    """The entry that `what` names, None if it is something else; an error for a name that is nothing known."""
    if not isinstance(what, str):
        return None
    name, _, rest = what.partition(":")
    if name in DATASETS and not rest.startswith("//"):
        return DATASETS[name]
    if Path(what).exists():
        return None
    usages = ", ".join(entry.usage for entry in DATASETS.values())
    # At least two letters: a Windows drive is not a dataset.
    if re.fullmatch(r"[a-z][a-z0-9_]+:(?!//).*", what):
        raise ValueError(f"there is no dataset {name!r}; there are: {usages}")
    if what.isidentifier():
        raise FileNotFoundError(f"there is no file {what}, and no dataset of that name; there are: {usages}")
    return None
