"""Registries of classes by name, with a description of each: methods and backbones."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, TypeVar, get_args

from daes.choices import check_choice


@dataclass(frozen=True)
class Reference:
    """A publication.

    >>> reference = Reference("Steffen Rendle", "Factorization Machines", "ICDM", 2010)
    >>> reference.short, str(reference)
    ('Rendle, ICDM 2010', 'Steffen Rendle. Factorization Machines. ICDM 2010.')
    """

    authors: str
    """Names separated by commas, or the first name and "et al."."""
    title: str
    venue: str
    year: int

    @property
    def short(self) -> str:
        """A short citation, for tables."""
        names = [author.split()[-1] for author in self.authors.removesuffix(" et al.").split(", ")]
        several = len(names) > 2 or self.authors.endswith(" et al.")
        return f"{names[0] + ' et al.' if several else ' & '.join(names)}, {self.venue} {self.year}"

    def __str__(self) -> str:
        return f"{self.authors.removesuffix('.')}. {self.title}. {self.venue} {self.year}."


class Configurable:
    """Base class that keeps the arguments of the constructor, so that an object can be described by them.

    `arguments` are those given to the constructor, by name, without defaults.
    """

    arguments: dict[str, Any]
    is_described = True
    """Whether an object of the class, built with `arguments`, consists of the same parts as this one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def record(self: Configurable, *args: Any, **kwargs: Any) -> None:
        if "arguments" not in self.__dict__:  # the constructors of base classes are called by that of the class
            names = list(signature(init).parameters)[1:]
            self.__dict__["arguments"] = {**dict(zip(names, args, strict=False)), **kwargs}
        init(self, *args, **kwargs)

    return record


T = TypeVar("T", bound=Configurable)


@dataclass(frozen=True, kw_only=True)
class Entry(Generic[T]):
    """Description of a registered name."""

    inputs: ClassVar[tuple[str, ...]] = ()
    """Arguments of the constructor that depend on the data, so they are not options."""

    name: str
    cls: type[T]
    title: str
    """The name in text."""
    short: str = ""
    """The name in tables and figures; the title by default."""
    reference: Reference | None = None
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Options that the name stands for; given options take precedence."""
    order: float = float("inf")
    """Position in tables; entries without one come last, by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", self.short or self.title)

    @property
    def place(self) -> tuple[Any, ...]:
        """Sort key of the entries."""
        return self.order, self.name

    @property
    def citation(self) -> str:
        """The short citation; empty if there is no reference."""
        return "" if self.reference is None else self.reference.short

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its default, which is that of the preset if it has one."""
        return {name: self.preset.get(name, default) for name, default in self._defaults().items()}

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data."""
        fields = {name: value for name, value in vars(self).items() if name not in ("cls", "order")}
        return {**fields, "reference": str(self.reference or "")}

    def build(self, *inputs: Any, **options: Any) -> T:
        """An object of the class, with the preset and the given options."""
        self.check_options(options)
        return self.cls(*inputs, **{**self.preset, **options})

    def check_options(self, options: Iterable[str]) -> None:
        """Raise a TypeError for an option that the class does not have."""
        known = self._defaults()
        for name in options:
            if name not in known and name not in self.inputs:
                raise TypeError(f"{self.name} has no option {name!r}; it has {', '.join(known) or 'none'}")

    def spelled_out(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, with the class's default for each option of the preset that is not among them.

        An object built with these does not depend on the preset.
        """
        defaults = self._defaults()
        return {**{name: defaults[name] for name in self.preset}, **options}

    def _defaults(self) -> dict[str, Any]:
        """The options of the class and their defaults, including those that it passes on to its base classes."""
        found: dict[str, Any] = {}
        passed_on: set[str] | None = None  # None for any
        for cls in self.cls.__mro__:
            if "__init__" not in cls.__dict__:
                continue
            parameters = list(signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
            for p in parameters:
                known = p.name in (*self.inputs, *found) or (passed_on is not None and p.name not in passed_on)
                if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and not known:
                    found[p.name] = p.default
            rest = [p.annotation for p in parameters if p.kind is p.VAR_KEYWORD]
            if not rest:
                break
            if options := get_args(rest[0]):  # Unpack[a TypedDict]
                passed_on = set(options[0].__annotations__)
        return found


E = TypeVar("E", bound=Entry[Any])
C = TypeVar("C", bound=type[Configurable])


class Registry(dict[str, E]):
    """Name → entry, in the order of tables.

    Args:
        kind: what is registered, for messages.
        entry: class of the entries.
    """

    def __init__(self, kind: str, entry: type[E]) -> None:
        super().__init__()
        self.kind = kind
        self._entry = entry

    def register(self, name: str, **fields: Any) -> Callable[[C], C]:
        """Decorate a class to register it under a name; a class may have several names.

        Args:
            name: the name in code, options and files.
            fields: the other fields of the entry.
        """

        def register(cls: C) -> C:
            known = self.get(name)
            # A class may be defined again, as in a notebook.
            if known is not None and full_name(known.cls) != full_name(cls):
                raise ValueError(f"{self.kind} {name!r} is already registered, for {full_name(known.cls)}")
            entry = self._entry(name=name, cls=cls, **fields)
            entry.check_options(entry.preset)
            ordered = sorted({**self, name: entry}.values(), key=lambda entry: entry.place)
            self.clear()
            self.update((entry.name, entry) for entry in ordered)
            return cls

        return register

    def find(self, name: str) -> E:
        """The entry of a name; a ValueError for an unknown one lists the names and suggests the closest."""
        check_choice(self.kind, name, self)
        return self[name]

    def describe(self, obj: Configurable) -> tuple[str, dict[str, Any]]:
        """Name and options with which an object can be built again; the full name of an unregistered class."""
        entry = self.entry_of(obj)
        if entry is None:
            return full_name(type(obj)), {}
        given = {name: value for name, value in obj.arguments.items() if name not in entry.inputs}
        return entry.name, entry.spelled_out(given)

    def entry_of(self, obj: Configurable) -> E | None:
        """The entry of an object's class; if there are several, the one whose preset agrees with the object."""
        entries = [entry for entry in self.values() if entry.cls is type(obj)]
        return max(entries, key=lambda entry: _agreement(entry, obj), default=None)


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import the modules of a package, so that their classes are registered."""
    for module in iter_modules(path):
        if not module.ispkg:
            import_module(f"{package}.{module.name}")


def registered_names(package: str, kind: str) -> tuple[str, ...]:
    """The names of a registry, read from the source of its package unless that is loaded, since it loads torch.

    >>> "deepfm" in registered_names("daes.backbone", "backbone")
    True
    """
    if package in sys.modules:
        registry: Registry[Any] = getattr(sys.modules[package], f"{kind.upper()}S")
        return tuple(registry)
    spec = find_spec(package)
    assert spec is not None
    files = sorted(file for folder in spec.submodule_search_locations or () for file in Path(folder).glob("*.py"))
    decorator = re.compile(rf'^@register_{kind}\(\s*"([^"]+)"', re.MULTILINE)
    return tuple(name for file in files for name in decorator.findall(file.read_text(encoding="utf-8")))


def full_name(cls: type) -> str:
    """Module and name of a class, as in an import."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _agreement(entry: Entry[Any], obj: Configurable) -> tuple[bool, int]:
    """Whether an object has all options of the entry's preset, and how many there are."""
    options = {**entry.spelled_out({}), **obj.arguments}
    return all(_plain(options[name]) == _plain(value) for name, value in entry.preset.items()), len(entry.preset)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
