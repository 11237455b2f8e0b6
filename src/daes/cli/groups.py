"""Groups of options: dataclasses of options that several commands share."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

_Group = TypeVar("_Group")


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """A command with the fields of its dataclass arguments as options, in place of these arguments.

    Each field is made by `option_field`.

    >>> from dataclasses import dataclass
    >>> from daes.cli.options import option_field
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = option_field("The width in characters.", default=3)
    >>> @grouped
    ... def draw(name: str, size: Size) -> None:
    ...     print(name, size.width)
    >>> list(signature(draw).parameters)
    ['name', 'width']
    >>> draw(name="box", width=4)
    box 4
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for parameter in signature(function).parameters.values():
        if parameter.name in groups:
            parameters += _options(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))

    @wraps(function)
    def command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        function(**given)

    command.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def flag(name: str) -> str:
    """The option of a parameter.

    >>> flag("batch_size")
    '--batch-size'
    """
    return f"--{name.replace('_', '-')}"


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line or in the configuration file."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def restored(context: typer.Context, group: _Group, stored: dict[str, Any]) -> _Group:
    """The group, with the stored value of every option that was not given."""
    changes = {
        field.name: stored[field.name]
        for field in fields(group)  # type: ignore[arg-type]
        if field.name in stored and not was_given(context, field.name)
    }
    return replace(group, **changes)  # type: ignore[type-var]


def _options(group: Any) -> list[Parameter]:
    hints, defaults = get_type_hints(group), group()
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=getattr(defaults, field.name),
            annotation=Annotated[hints[field.name], field.metadata["option"]],
        )
        for field in fields(group)
    ]
