"""The OpenAPI description of requests and answers, made from the model's schema."""

from typing import Any

from daes.stream.schema import Schema

ARROW = "application/vnd.apache.arrow.stream"
"""The content type of Arrow IPC streams."""
LONGEST_ID = 200
"""The most characters of a request's id."""

_EXACT = 2**53
_NUMBER = {"type": ["number", "boolean", "null"]}
_CATEGORY = {"type": ["string", "number", "boolean", "null"], "minimum": -_EXACT, "maximum": _EXACT}
_ID = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID, "description": "Names the request, for its labels."}


def describe_rows(schema: Schema, most: int) -> dict[str, Any]:
    columns: dict[str, Any] = {name: {**_NUMBER, "description": "a number"} for name in schema.numerical}
    columns |= {name: {**_CATEGORY, "description": "a category"} for name in schema.categorical}
    columns |= {
        name: {"description": "a column of training: accepted and not used"}
        for name in (schema.label, schema.time, schema.weight)
        if name is not None
    }
    row = {"type": "object", "properties": columns, "additionalProperties": False}
    content = {
        "type": "object",
        "required": ["rows"],
        "additionalProperties": False,
        "properties": {
            "rows": {"type": "array", "items": row, "maxItems": most},
            "id": {**_ID, "type": ["string", "null"]},
        },
    }
    example = {"rows": [example_row(schema)]}
    return {
        "required": True,
        "content": {
            "application/json": {"schema": content, "example": example},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }


def example_row(schema: Schema) -> dict[str, Any]:
    return {**dict.fromkeys(schema.numerical, 1.5), **dict.fromkeys(schema.categorical, "a")}


LABELS: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["id", "labels"],
                "additionalProperties": False,
                "properties": {"id": _ID, "labels": {"type": "array", "items": {"enum": [0, 1, None]}}},
            },
            "example": {"id": "of the answer to /predict", "labels": [1]},
        }
    },
}
"""The body of /labels."""

_DETAIL = {
    "type": "object",
    "properties": {
        "detail": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                    "msg": {"type": "string"},
                },
            },
        }
    },
}


def _error(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _DETAIL}}}


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
    scores = {
        "type": "object",
        "required": ["scores", "id", "model"],
        "properties": {
            "scores": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}},
            "id": {"type": "string"},
            "model": {"type": "string"},
        },
    }
    answer = {
        "description": "The probability of a click for each row",
        "content": {"application/json": {"schema": scores}, ARROW: {"schema": {"type": "string", "format": "binary"}}},
    }
    others = {status: content for status, content in ERRORS.items() if status not in (404, 409)}
    return {200: answer, **others, 415: _error("Another content type")}
