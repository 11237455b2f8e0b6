"""HTTP requests and answers: reading bodies, checking them, and writing scores."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from daes.serving.batching import ScoredRows
from daes.serving.openapi import ARROW, LONGEST_ID
from daes.serving.rows import RowError
from daes.serving.scorer import Scorer
from daes.stream.arrow import pa
from daes.stream.batch import Batch


class BadRequest(Exception):
    """A request that cannot be answered: a status, a sentence, and the location in the request."""

    def __init__(self, status: int, message: str, *where: str | int) -> None:
        super().__init__(message)
        self.status, self.where = status, where


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body; `BadRequest` as soon as it is too long."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 18 or int(declared) > max_bytes:
        raise BadRequest(413, f"the body must have at most {max_bytes} bytes, got {declared[:20]}")
    parts, size = [], 0
    try:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > max_bytes:
                raise BadRequest(413, f"the body must have at most {max_bytes} bytes")
    except ClientDisconnect:
        raise BadRequest(400, f"the client has left after {size} bytes of the body") from None
    return b"".join(parts)


def is_arrow(request: Request) -> bool:
    """Whether the body is an Arrow stream; `BadRequest` if it is neither that nor JSON."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == ARROW:
        return True
    if kind != "application/json":
        raise BadRequest(415, f"the content type must be application/json or {ARROW}, got {kind[:100]!r}")
    return False


def read_json_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(422, f"the body must be valid JSON, got {error}", "body") from None
    if not isinstance(content, dict):
        raise BadRequest(422, f"the body must be a JSON object, got {_kind(content)}", "body")
    return content


def read_rows(body: bytes, scorer: Scorer, max_rows: int) -> tuple[str | None, Batch]:
    """The id, if there is one, and the rows of a request in JSON."""
    content = read_json_object(body)
    _refuse_other_keys(content, ("rows", "id"))
    rows = content.get("rows")
    if not isinstance(rows, list):
        raise BadRequest(422, f"rows must be a list of objects, got {_kind(rows)}", "body", "rows")
    _check_rows(len(rows), max_rows)
    try:
        return _read_id(content, required=False), scorer.read_rows(rows)
    except RowError as error:
        where = (error.row, error.field) if error.field else (error.row,)
        raise BadRequest(422, error.reason, "body", "rows", *where) from None


def read_arrow(body: bytes, scorer: Scorer, max_rows: int) -> tuple[str | None, Batch]:
    """The rows of a request as an Arrow stream, which has no id."""
    try:
        with pa.ipc.open_stream(body) as reader:
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                _check_rows(rows, max_rows)
                batch.validate(full=True)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
        return None, scorer.read_table(table)
    except (pa.ArrowException, ValueError, TypeError, OSError, MemoryError, OverflowError, UnicodeError) as error:
        raise BadRequest(422, " ".join(str(error).split()) or type(error).__name__, "body") from None


def read_labels(content: Mapping[str, Any]) -> tuple[str, list[int | None]]:
    """The id of a request and the labels of its rows."""
    _refuse_other_keys(content, ("id", "labels"))
    name = _read_id(content, required=True)
    assert name is not None
    labels = content.get("labels")
    if not isinstance(labels, list):
        raise BadRequest(422, f"labels must be a list of 0, 1 and null, got {_kind(labels)}", "body", "labels")
    for index, label in enumerate(labels):
        if label is not None and (not isinstance(label, bool | int | float) or label not in (0, 1)):
            raise BadRequest(422, f"must be 0, 1 or null, got {_kind(label)}", "body", "labels", index)
    return name, [None if label is None else int(label) for label in labels]


def _read_id(content: Mapping[str, Any], *, required: bool) -> str | None:
    name = content.get("id")
    if name is None and not required:
        return None
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_ID:
        raise BadRequest(422, f"id must be a text of 1 to {LONGEST_ID} characters, got {_kind(name)}", "body", "id")
    return name


def _refuse_other_keys(content: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            raise BadRequest(422, f"the body must have no keys but {' and '.join(known)}", "body", key[:100])


def _check_rows(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        raise BadRequest(422, f"a request may have at most {max_rows} rows, got {rows} or more", "body", "rows")


def json_answer(name: str, scored: ScoredRows) -> Response:
    content = {"scores": scored.scores.tolist(), "id": name, "model": scored.served.version.name}
    return Response(json.dumps(content), media_type="application/json")


def arrow_answer(name: str, scored: ScoredRows) -> Response:
    table = pa.table({"score": scored.scores})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"X-Request-Id": name, "X-Model": scored.served.version.name}
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW, headers=headers)


def _kind(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"
