"""The schema of data that are opened: inferred, or a dataset's own with some columns named otherwise."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daes.stream.files_source import FilesSource, columns_not_used
from daes.stream.follow import FollowedFiles
from daes.stream.schema import LABEL_NAMES, Schema, check_not_excluded, infer_schema, no_such_column
from daes.stream.source import Source


def with_roles(
    schema: Schema, source: Source, named: Mapping[str, str | Sequence[str] | None], exclude: Sequence[str]
) -> Schema:
    """A dataset's schema with other roles for some columns; a column has one role only."""
    given = {role: value for role, value in named.items() if value is not None}
    taken = _named_columns(named)
    if not taken and not exclude:
        return schema
    available = source.arrow_schema.names
    if missing := [name for name in (*taken, *exclude) if name not in available]:
        raise ValueError(no_such_column(missing, available))
    check_not_excluded(sorted(taken), exclude)
    roles: dict[str, Any] = {}
    for role in ("numerical", "categorical"):
        left = [name for name in getattr(schema, role) if name not in taken]
        roles[role] = tuple(name for name in given.get(role, left) if name not in exclude)
    for role in ("label", "time", "weight"):
        own = getattr(schema, role)
        roles[role] = given.get(role, None if own in taken or own in exclude else own)
    return replace(schema, **roles)


def infer_roles(source: Source, named: Mapping[str, Any], exclude: Sequence[str]) -> Schema:
    """What `infer_schema` finds, with a warning of columns that are not used because the first file lacks them."""
    all_named = named["numerical"] is not None and named["categorical"] is not None
    later = source.later_columns() if isinstance(source, FilesSource) and not all_named else {}
    schema = infer_schema(source.arrow_schema, **named, exclude=[name for name in exclude if name not in later])
    unused = {name: path for name, path in later.items() if name not in exclude}
    for path in dict.fromkeys(unused.values()):
        warnings.warn(columns_not_used(path, [name for name in unused if unused[name] == path]), stacklevel=3)
    if isinstance(source, FollowedFiles) and not all_named:
        source.known_columns = set(source.arrow_schema.names)
    return schema


def no_label(
    columns: Sequence[str], named: Mapping[str, str | Sequence[str] | None], exclude: Sequence[str] = ()
) -> str:
    """The error message for data without a label, with a likely reason; no column of another role is one."""
    message = (
        f"label must be named, since no column of numbers is called {', '.join(LABEL_NAMES)}; "
        f"the columns are: {', '.join(columns)}"
    )
    other = {*_named_columns(named), *exclude}
    for name in columns:
        if name.casefold() in LABEL_NAMES and name not in other:
            return (
                f"{message}. {name!r} has text among its values: with --label {name}, --label-map TEXT=1 says which "
                "text means 1, or, for CSV files, --bad-rows skip leaves such rows out"
            )
    if any(re.fullmatch(r"[-+]?\d*\.?\d+", name) for name in columns):
        message += ". Is that a row? --no-header reads a file without names"
    return message


def _named_columns(named: Mapping[str, str | Sequence[str] | None]) -> set[str]:
    """The names in `named`, which has one or several for a role."""
    values = [value for value in named.values() if value is not None]
    return {name for value in values for name in ([value] if isinstance(value, str) else value)}
