"""Packages that import the homes of their names when these are first used, so that importing them is quick."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        homes: the modules, each with the names that the package takes from it.
    """
    home = {name: module for module, names in homes.items() for name in names}
    loaded = vars(import_module(package))

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded[name] = getattr(import_module(home[name]), name)
        return loaded[name]

    return get, lambda: sorted({*loaded, *home})
