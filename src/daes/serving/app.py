"""A model over HTTP: scores, health, metrics, drift and a page, as one FastAPI application."""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

import daes
from daes.extras import require
from daes.serving.batching import MicroBatcher, Overloaded, ScoredRows
from daes.serving.drift import DriftWatch
from daes.serving.live_model import LiveModel, Serving
from daes.serving.openapi import ARROW, ERRORS, LABELS, describe_answer, describe_rows
from daes.serving.prometheus import ServingCollector
from daes.serving.rows import RowError
from daes.serving.scorer import Scorer
from daes.serving.traffic import Traffic, UnknownRequest
from daes.storage.run_folder import strict
from daes.stream.batch import Batch

_log = logging.getLogger("daes.serving")

_LARGE_BODY = 1 << 16
"""Bytes from which on a body is read in a thread, so that the other requests are answered meanwhile."""
_LONGEST_ID = 200


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Args:
        body_bytes: its size.
        rows: rows to score.
        seconds: from its first byte to the answer.
        waiting_rows: rows of all requests that wait to be scored.
    """

    body_bytes: int = 8 << 20
    rows: int = 10_000
    seconds: float = 10.0
    waiting_rows: int = 100_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")


class BadRequest(Exception):
    """A request that cannot be answered: a status, a sentence, and where in the request it is."""

    def __init__(self, status: int, message: str, *where: str | int) -> None:
        super().__init__(message)
        self.status, self.where = status, where


class Service:
    """A model that follows its folder, with everything that is counted about it.

    Args:
        folder: a folder of `daes train`, while it trains or afterwards, or a saved model.
        limits: what a request may ask for.
        follow: seconds between looks for a newer model.
        batch_wait: seconds that a request waits for others to be scored with.
        drift_window: rows that are compared with the rows of training.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        limits: Limits | None = None,
        follow: float = 1.0,
        batch_wait: float = 0.0,
        drift_window: int = 10_000,
    ) -> None:
        self.limits = limits or Limits()
        self.traffic = Traffic()
        self.model = LiveModel(folder, on_change=lambda loaded: self.drift.learned(loaded))
        self.drift = DriftWatch(self.model.schema, window=drift_window)
        self.model.refresh()
        if self.model.current is None and self.model.refused is not None:
            raise ValueError(f"{self.model.refused.version.path} cannot be served: {self.model.refused.reason}")
        self.batcher = MicroBatcher(
            lambda: self.model.current, wait=batch_wait, most_waiting=self.limits.waiting_rows, on_scored=self._scored
        )
        self.model.follow(follow)
        self._ids, self._prefix = count(), token_hex(4)

    def new_id(self) -> str:
        """A name for a request that has none."""
        return f"{self._prefix}-{next(self._ids):x}"

    def state(self) -> dict[str, Any]:
        """Which model is live, since when, and what was refused."""
        live, refused = self.model.current, self.model.refused
        return {
            "ready": live is not None,
            "model": None if live is None else describe(live),
            "refused": None
            if refused is None
            else {"version": refused.version.name, "reason": refused.reason, "at": refused.at},
        }

    def status(self) -> dict[str, Any]:
        """Everything there is to know, as plain values."""
        return {
            **self.state(),
            "changes": self.model.changes,
            "refusals": self.model.refusals,
            "traffic": self.traffic.snapshot(),
            "drift": self.drift.report(),
        }

    def close(self) -> None:
        """End all threads."""
        self.model.close()
        self.batcher.close()
        self.drift.close()

    def _scored(self, batch: Batch, scores: Any) -> None:
        self.drift.observe(batch)
        self.traffic.scored(scores)


def describe(live: Serving) -> dict[str, Any]:
    """A live model, as plain values."""
    return {
        "version": live.version.name,
        "written": live.version.written.isoformat(timespec="seconds"),
        "age": max(0.0, time.time() - live.version.modified / 1e9),
        "rows": live.rows,
        "method": live.scorer.model.config["embedding"],
        "backbone": live.scorer.model.config["backbone"],
        "compiled": live.scorer.is_compiled,
    }


def create_app(
    service: Service,
    *,
    api_key: str | None = None,
    page: str = "",
    docs: str = "",
    view: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> FastAPI:
    """The application.

    Args:
        service: what it serves; who made it closes it.
        api_key: asked for, as `Authorization: Bearer KEY`, by everything but health checks and the pages themselves,
            which hold no data.
        page: HTML of the page at `/`.
        docs: HTML of the page at `/docs`.
        view: what /status says as the page draws it, at `/view`.
    """
    app = FastAPI(title="daes", version=daes.__version__, docs_url=None, redoc_url=None, description=__doc__)
    bearer = HTTPBearer(auto_error=False)

    async def authorised(given: HTTPAuthorizationCredentials | None = Depends(bearer)) -> None:  # noqa: B008
        assert api_key is not None
        if given is None or not hmac.compare_digest(given.credentials.encode(), api_key.encode()):
            raise HTTPException(401, "an API key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"})

    protected = [] if api_key is None else [Depends(authorised)]
    metrics = CollectorRegistry()
    metrics.register(ServingCollector(service))

    @app.exception_handler(BadRequest)
    async def bad_request(_: Request, error: BadRequest) -> Response:
        return _refusal(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"detail": [str(one) for one in error.errors()]}, 422)

    @app.post(
        "/predict",
        dependencies=protected,
        openapi_extra={"requestBody": describe_rows(service.model.schema, service.limits.rows)},
        responses=describe_answer(),
        summary="Score rows",
        tags=["scores"],
    )
    async def predict(request: Request) -> Response:
        """Scores of rows, in their order. A column that is left out is missing."""
        started, rows, status = time.perf_counter(), 0, 500
        try:
            async with asyncio.timeout(service.limits.seconds):
                answer, rows = await _predict(request, service)
            status = answer.status_code
            return answer
        except TimeoutError:
            status = 503
            raise BadRequest(503, f"not answered within {service.limits.seconds:g} s") from None
        except BadRequest as error:
            status = error.status
            raise
        finally:
            service.traffic.request(status, time.perf_counter() - started, rows)

    @app.post(
        "/labels",
        dependencies=protected,
        openapi_extra={"requestBody": LABELS},
        responses=ERRORS,
        summary="Say what was clicked",
        tags=["scores"],
    )
    async def labels(request: Request) -> dict[str, int]:
        """The labels of a request's rows, once they are known: what calibration is measured by. Nothing is learned."""
        name, given = _read_labels(_read_json(await _body(request, service.limits)))
        try:
            return {"labels": service.traffic.label(name, given)}
        except UnknownRequest:
            raise BadRequest(404, f"no request {name!r} is waiting for labels", "body", "id") from None
        except ValueError as error:
            raise BadRequest(409, str(error), "body", "labels") from None

    @app.get("/healthz", summary="Whether the process answers", tags=["state"])
    async def healthz() -> dict[str, bool]:
        return {"alive": True}

    @app.get("/readyz", summary="Whether a model is live, and which", tags=["state"], responses={503: {}})
    async def readyz() -> JSONResponse:
        state = service.state()
        return JSONResponse(state, 200 if state["ready"] else 503)

    @app.get(
        "/metrics",
        dependencies=protected,
        response_class=PlainTextResponse,
        summary="Metrics for Prometheus",
        tags=["state"],
    )
    def prometheus() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    @app.get("/drift", dependencies=protected, summary="The last rows against those of training", tags=["state"])
    def drift() -> JSONResponse:
        return JSONResponse(strict(service.drift.report()))

    @app.get("/status", dependencies=protected, summary="What the page shows", tags=["state"])
    def status() -> JSONResponse:
        return JSONResponse(strict(service.status()))

    @app.get("/view", dependencies=protected, include_in_schema=False)
    def viewed() -> JSONResponse:
        content = service.status()
        return JSONResponse(strict(content if view is None else view(content)))

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page, headers=_PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return HTMLResponse(docs, headers=_PAGE_HEADERS)

    return app


_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def _predict(request: Request, service: Service) -> tuple[Response, int]:
    live = service.model.current
    if live is None:
        raise BadRequest(503, "there is no model yet: the run has not written its first checkpoint")
    body = await _body(request, service.limits)
    arrow = _is_arrow(request)
    read = _read_arrow if arrow else _read_rows
    arguments = (body, live.scorer, service.limits.rows)
    name, batch = await asyncio.to_thread(read, *arguments) if len(body) > _LARGE_BODY else read(*arguments)
    name = name or service.new_id()
    if len(batch):
        try:
            scored = await service.batcher.score(batch)
        except Overloaded as error:
            raise BadRequest(503, str(error)) from None
        service.traffic.remember(name, scored.scores)
    else:
        scored = ScoredRows(live.scorer.score(batch), live)
    return (_arrow_answer if arrow else _json_answer)(name, scored), len(batch)


async def _body(request: Request, limits: Limits) -> bytes:
    declared = request.headers.get("content-length", "0")
    most = limits.body_bytes
    if not declared.isdecimal() or int(declared) > most:
        raise BadRequest(413, f"the body must have at most {most} bytes, got {declared[:20]}")
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise BadRequest(413, f"the body must have at most {most} bytes")
    return b"".join(parts)


def _is_arrow(request: Request) -> bool:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == ARROW:
        return True
    if kind != "application/json":
        raise BadRequest(415, f"the content type must be application/json or {ARROW}, got {kind[:100]!r}")
    return False


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(422, f"the body must be valid JSON, got {error}", "body") from None
    if not isinstance(content, dict):
        raise BadRequest(422, f"the body must be a JSON object, got {_kind(content)}", "body")
    return content


def _read_rows(body: bytes, scorer: Scorer, most: int) -> tuple[str | None, Batch]:
    content = _read_json(body)
    _refuse_other_keys(content, ("rows", "id"))
    rows = content.get("rows")
    if not isinstance(rows, list):
        raise BadRequest(422, f"rows must be a list of objects, got {_kind(rows)}", "body", "rows")
    _check_rows(len(rows), most)
    try:
        return _read_id(content, required=False), scorer.read_rows(rows)
    except RowError as error:
        where = (error.row, error.field) if error.field else (error.row,)
        raise BadRequest(422, error.reason, "body", "rows", *where) from None


def _read_arrow(body: bytes, scorer: Scorer, most: int) -> tuple[str | None, Batch]:
    pa = require("pyarrow")
    try:
        with pa.ipc.open_stream(body) as reader:
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                _check_rows(rows, most)
                batch.validate(full=True)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
        return None, scorer.read_table(table)
    except (pa.ArrowException, ValueError, TypeError, OSError, MemoryError, OverflowError, UnicodeError) as error:
        raise BadRequest(422, " ".join(str(error).split()) or type(error).__name__, "body") from None


def _read_labels(content: Mapping[str, Any]) -> tuple[str, list[int | None]]:
    _refuse_other_keys(content, ("id", "labels"))
    name = _read_id(content, required=True)
    assert name is not None
    labels = content.get("labels")
    if not isinstance(labels, list):
        raise BadRequest(422, f"labels must be a list of 0, 1 and null, got {_kind(labels)}", "body", "labels")
    for place, label in enumerate(labels):
        if label is not None and (not isinstance(label, bool | int | float) or label not in (0, 1)):
            raise BadRequest(422, f"must be 0, 1 or null, got {_kind(label)}", "body", "labels", place)
    return name, [None if label is None else int(label) for label in labels]


def _read_id(content: Mapping[str, Any], *, required: bool) -> str | None:
    name = content.get("id")
    if name is None and not required:
        return None
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_ID:
        raise BadRequest(422, f"id must be a text of 1 to {_LONGEST_ID} characters, got {_kind(name)}", "body", "id")
    return name


def _refuse_other_keys(content: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            raise BadRequest(422, f"the body must have no keys but {' and '.join(known)}", "body", key[:100])


def _check_rows(rows: int, most: int) -> None:
    if rows > most:
        raise BadRequest(422, f"a request may have at most {most} rows, got {rows} or more", "body", "rows")


def _json_answer(name: str, scored: ScoredRows) -> Response:
    content = {"scores": scored.scores.tolist(), "id": name, "model": scored.served.version.name}
    return Response(json.dumps(content), media_type="application/json")


def _arrow_answer(name: str, scored: ScoredRows) -> Response:
    pa = require("pyarrow")
    table = pa.table({"score": scored.scores})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"X-Request-Id": name, "X-Model": scored.served.version.name}
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW, headers=headers)


def _refusal(error: BadRequest) -> Response:
    content = {"detail": [{"loc": list(error.where), "msg": str(error)}]}
    headers = {"Retry-After": "1"} if error.status == 503 else None
    return Response(json.dumps(content), error.status, headers, media_type="application/json")


def _kind(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"
