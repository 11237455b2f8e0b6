"""The methods in words: what is known of each, its options and their defaults."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from inspect import Parameter, getdoc, signature
from textwrap import dedent
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daes.embedding import METHODS, PRESETS
from daes.embedding.base import MethodInfo, NumericalEmbedding
from daes.embedding.registry import method_info

PAGES = {
    "static binning": "static-binning",
    "neural": "neural",
    "interpolated binning": "interpolated-binning",
    "dynamic quantile": "dynamic-quantile",
}
"""Family → page of docs/methods."""

_RECONSTRUCTION = "* a reconstruction: no code is public; `daes methods NAME` says what is known and what was chosen."
_PRESET = "`daes` is field-aware too with `modulation=`."


@dataclass(frozen=True)
class Option:
    """An argument of a method: its default and what it does."""

    name: str
    default: Any
    help: str


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    name: str
    info: MethodInfo

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self.info)}


@dataclass(frozen=True)
class Explanation:
    """All that is to be said of one method."""

    name: str
    info: MethodInfo
    text: str
    options: Sequence[Option] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        options = [{**asdict(option), "default": _plain(option.default)} for option in self.options]
        return {"name": self.name, **asdict(self.info), "text": self.text, "options": options}


def entries() -> list[Entry]:
    """Every method, family by family."""
    known = [Entry(name, method_info(name)) for name in METHODS]
    return [entry for family in PAGES for entry in known if entry.info.family == family]


def explanation(name: str) -> Explanation:
    """One method: its docstring without the list of arguments, and these with their defaults."""
    info = method_info(name)
    text = getdoc(METHODS[name]) or ""
    return Explanation(name, info, _without_arguments(text), list(_options(name)))


def table(width: int) -> RenderableType:
    """The registry for a terminal of that width; where it is narrow, title and reference are left out."""
    wide = width >= 120
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    grid.add_column("name", style="bold", no_wrap=True)
    if wide:
        grid.add_column("method", no_wrap=True)
    grid.add_column("learns")
    for heading in ("continuous", "distribution-\naware", "field-\naware"):
        grid.add_column(heading, justify="center")
    if wide:
        grid.add_column("reference", no_wrap=True)
    family = ""
    for entry in entries():
        info = entry.info
        if info.family != family:
            family = info.family
            grid.add_section()
            grid.add_row(Text(family, style="italic cyan", overflow="ignore"))
        marks = [_mark(known) for known in (info.continuous, info.distribution_aware, info.field_aware)]
        title, reference = ([info.title], [info.reference]) if wide else ([], [])
        grid.add_row("  " + _starred(entry), *title, _learning(info), *marks, *reference)
    notes = Text(f"{_RECONSTRUCTION}\n{_PRESET}".replace("`", ""), style="dim")
    return Group(grid, "", notes)


def render(explained: Explanation) -> RenderableType:
    """One method for a terminal."""
    info = explained.info
    traits = {"continuous": info.continuous, "distribution-aware": info.distribution_aware}
    known = [info.family, _learning(info), *(name for name, has in traits.items() if has)]
    known += ["field-aware"] if info.field_aware else []
    known += ["a reconstruction"] if info.reconstruction else []
    options = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    options.add_column("option", style="bold", no_wrap=True)
    options.add_column("default")
    options.add_column("what it does")
    for option in explained.options:
        options.add_row(option.name, Text(_shown(option.default)), _styled(option.help))
    return Group(
        Text.assemble((explained.name, "bold"), f"  {info.title}, {info.reference}"),
        Text(", ".join(known), style="dim"),
        "",
        _styled(_reflowed(explained.text)),
        "",
        options,
    )


def markdown() -> str:
    """The table of docs/methods.md."""
    lines = [
        "| name | method | family | learns | continuous | distribution-aware | field-aware | reference |",
        "| --- | --- | --- | --- | :---: | :---: | :---: | --- |",
    ]
    for entry in entries():
        info = entry.info
        marks = [_mark(known) for known in (info.continuous, info.distribution_aware, info.field_aware)]
        family = f"[{info.family}](methods/{PAGES[info.family]}.md)"
        star = "\\*" if info.reconstruction else ""
        cells = [f"`{entry.name}`{star}", info.title, family, _learning(info), *marks, info.reference]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "\\" + _RECONSTRUCTION, _PRESET, ""])


def _options(name: str) -> Iterator[Option]:
    preset = PRESETS.get(name, {})
    helps = _argument_helps(METHODS[name])
    for parameter in list(signature(METHODS[name]).parameters.values())[2:]:
        assert parameter.default is not Parameter.empty
        default = preset.get(parameter.name, parameter.default)
        yield Option(parameter.name, default, helps.get(parameter.name, ""))


def _argument_helps(method: type[NumericalEmbedding]) -> dict[str, str]:
    """Argument → what the docstring says of it; of those it does not list, what its base classes say."""
    helps: dict[str, str] = {}
    for cls in reversed(method.__mro__):
        block = re.search(r"^ *Args:\n((?: +.*\n?| *\n)*?)(?=^ *\n|\Z)", cls.__doc__ or "", re.MULTILINE)
        if block is None:
            continue
        for item in re.split(r"\n(?=\w+: )", dedent(block[1]).strip()):
            argument, _, text = item.partition(": ")
            helps[argument] = " ".join(text.split())
    return helps


def _without_arguments(text: str) -> str:
    return re.sub(r"\n*^Args:\n(?: +.*\n?)*", "\n", text, flags=re.MULTILINE).strip()


def _reflowed(text: str) -> str:
    """Paragraphs as one line each, for the terminal to break; formulas and examples as they are.

    >>> print(_reflowed("One\\nsentence.\\n\\n1. First\\n   item\\n2. second\\n\\n    x =\\n    y"))
    One sentence.
    <BLANKLINE>
    1. First item
    2. second
    <BLANKLINE>
        x =
        y
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        part if part.startswith(("    ", ">>>")) else re.sub(r"\n {0,3}(?!\d\. |- |\s)", " ", part)
        for part in paragraphs
    )


def _styled(text: str) -> Text:
    """The few marks that docstrings use, as styles."""
    styled = Text()
    for piece in re.split(r"(\*\*[^*\n]+\*\*|`[^`\n]+`)", text):
        if piece.startswith("**"):
            styled.append(piece[2:-2], "bold")
        elif piece.startswith("`"):
            styled.append(piece[1:-1], "cyan")
        else:
            styled.append(piece)
    return styled


def _starred(entry: Entry) -> str:
    return entry.name + "*" * entry.info.reconstruction


def _learning(info: MethodInfo) -> str:
    return "streaming" if info.streaming else "offline"


def _mark(known: bool) -> str:
    return "yes" if known else "–"


def _shown(default: Any) -> str:
    return f"{default:_}" if isinstance(default, int) and abs(default) >= 10_000 else repr(default)


def _plain(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default
