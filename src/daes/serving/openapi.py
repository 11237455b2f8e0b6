"""The OpenAPI description of requests and answers, made from the model's schema."""

from typing import Any

from daes.stream.schema import Schema

ARROW = "application/vnd.apache.arrow.stream"
"""The content type of Arrow IPC streams."""
LONGEST_ID = 200
"""The most characters of a request's id."""

_EXACT = 2**53
_NUMBER = {"type": ["number", "boolean", "null"], "description": "a number"}
_CATEGORY = {
    "type": ["string", "number", "boolean", "null"],
    "minimum": -_EXACT,
    "maximum": _EXACT,
    "description": "a category",
}
_UNUSED = {"description": "a column of training: accepted and not used"}
_ID = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID, "description": "Names the request, for its labels."}
_ARROW_BODY = {ARROW: {"schema": {"type": "string", "format": "binary"}}}


def _list(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _request(example: dict[str, Any], required: list[str], **properties: Any) -> dict[str, Any]:
    """The body of a request: a JSON object without other properties."""
    schema = {"type": "object", "required": required, "additionalProperties": False, "properties": properties}
    return {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}


def _answer(description: str, **properties: Any) -> dict[str, Any]:
    """An answer: a JSON object."""
    schema = {"type": "object", "properties": properties}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def describe_rows(schema: Schema, max_rows: int) -> dict[str, Any]:
    """The body of /predict."""
    columns: dict[str, Any] = dict.fromkeys(schema.numerical, _NUMBER) | dict.fromkeys(schema.categorical, _CATEGORY)
    unused = (schema.label, schema.time, schema.weight)
    columns |= {name: _UNUSED for name in unused if name is not None}
    row = {"type": "object", "properties": columns, "additionalProperties": False}
    identity = {**_ID, "type": ["string", "null"]}
    body = _request({"rows": [example_row(schema)]}, ["rows"], rows=_list(row, maxItems=max_rows), id=identity)
    body["content"] |= _ARROW_BODY
    return body


def example_row(schema: Schema) -> dict[str, Any]:
    return {**dict.fromkeys(schema.numerical, 1.5), **dict.fromkeys(schema.categorical, "a")}


LABELS = _request(
    {"id": "of the answer to /predict", "labels": [1]}, ["id", "labels"], id=_ID, labels=_list({"enum": [0, 1, None]})
)
"""The body of /labels."""


def _error(description: str) -> dict[str, Any]:
    where = _list({"type": ["string", "integer"]})
    problem = {"type": "object", "properties": {"loc": where, "msg": {"type": "string"}}}
    return _answer(description, detail=_list(problem))


ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"description": "No API key, or a wrong one"},
    404: _error("No such request"),
    409: _error("The number of labels differs from the number of rows of the request"),
    413: _error("Too many bytes"),
    422: _error("A bad request: `loc` says where, down to row and column, and `msg` what is wrong"),
    503: _error("No model yet, too many rows waiting, or a timeout"),
}
"""Answers to bad requests."""


def describe_answer() -> dict[int | str, dict[str, Any]]:
    """The answers of /predict, by status."""
    scores = _list({"type": "number", "minimum": 0, "maximum": 1})
    text = {"type": "string"}
    answer = _answer("The probability of a click for each row", scores=scores, id=text, model=text)
    answer["content"]["application/json"]["schema"]["required"] = ["scores", "id", "model"]
    answer["content"] |= _ARROW_BODY
    others = {status: content for status, content in ERRORS.items() if status not in (404, 409)}
    return {200: answer, **others, 415: _error("Another content type")}
