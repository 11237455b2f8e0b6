"""`--config`: options from a TOML file; the command line takes precedence."""

import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Annotated, Any

import typer

from daes.choices import did_you_mean
from daes.cli.options import option


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None and not context.resilient_parsing:
        known: dict[str, str] = {}
        switches = {str(parameter.name) for parameter in context.command.params if getattr(parameter, "is_flag", False)}
        for parameter in context.command.params:
            if parameter.name and parameter.name not in ("config", "help"):
                flags = [flag.removeprefix("--") for flag in parameter.opts if flag.startswith("--")]
                known |= dict.fromkeys((parameter.name.replace("_", "-"), *flags), parameter.name)
        context.default_map = read_options(path, known, switches)
    return path


Config = Annotated[
    Path | None,
    option(
        'Options from a TOML file, named as here: `batch-size = 1024`, `numerical = ["price", "age"]`. The '
        "command line takes precedence.",
        default=...,
        metavar="FILE",
        callback=_load,
        is_eager=True,
        panel="Run",
    ),
]


def read_options(path: Path, known: Mapping[str, str], switches: Set[str] = frozenset()) -> dict[str, Any]:
    """The options in a file, by parameter name, as the command line would give them; unknown ones are an error.

    Args:
        path: the file.
        known: the parameter of each option.
        switches: the parameters that are on or off; only they may be true or false.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.toml"
    >>> _ = path.write_text('batch-size = 1024\\nnumerical = ["price", "age"]\\nmethod-option = {num_meta = 20}')
    >>> read_options(path, {name: name.replace("-", "_") for name in ("batch-size", "numerical", "method-option")})
    {'batch_size': '1024', 'numerical': ['price', 'age'], 'method_option': ['num_meta=20']}
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    options, unknown = {}, []
    for key, value in content.items():
        name = known.get(key.replace("_", "-"))
        if name is not None:
            options[name] = _typed(key, value, path, name in switches)
        else:
            unknown.append(repr(key) + did_you_mean(key, known))
    if unknown:
        raise ValueError(
            f"{path} has {'an ' * (len(unknown) == 1)}unknown option{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
        )
    return options


def _typed(key: str, value: Any, path: Path, switch: bool) -> Any:
    """A value as the command line would give it."""
    if isinstance(value, bool) and switch:
        return value
    if isinstance(value, list) and all(map(_is_plain, value)):
        return [str(item) for item in value]
    if isinstance(value, dict):
        return [f"{name}={_literal(item)}" for name, item in value.items()]
    if _is_plain(value):
        return str(value)
    needed = "true or false" if switch else "a text, a number or a list of these"
    raise ValueError(f"{path}: {key} must be {needed}, got {_literal(value)}")


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, list) else str(value)
