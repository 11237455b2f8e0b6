"""A model over HTTP as a FastAPI application: scores, health, metrics, drift and a live page."""

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

import daes
from daes.serving.batching import Overloaded, ScoredRows
from daes.serving.openapi import ERRORS, LABELS, describe_answer, describe_rows
from daes.serving.prometheus import ServingCollector
from daes.serving.requests import (
    BadRequest,
    arrow_answer,
    is_arrow,
    json_answer,
    read_arrow,
    read_body,
    read_json_object,
    read_labels,
    read_rows,
)
from daes.serving.service import Service
from daes.serving.traffic import UnknownRequest
from daes.storage.run_folder import strict

_LARGE_BODY = 1 << 16
"""Larger bodies, in bytes, are parsed in a thread, so that other requests are answered meanwhile."""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def create_app(
    service: Service,
    *,
    api_key: str | None = None,
    page: str = "",
    docs: str = "",
    view: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> FastAPI:
    """Create the application.

    Args:
        service: what it serves; the caller closes it.
        api_key: the key required, as `Authorization: Bearer KEY`, for everything except health checks and the pages
            themselves, which hold no data.
        page: HTML of the page at `/`.
        docs: HTML of the page at `/docs`.
        view: turns what /status returns into what the page draws, at `/view`.
    """
    app = FastAPI(title="daes", version=daes.__version__, docs_url=None, redoc_url=None, description=__doc__)
    bearer = HTTPBearer(auto_error=False)

    async def authorised(given: HTTPAuthorizationCredentials | None = Depends(bearer)) -> None:  # noqa: B008
        assert api_key is not None
        if given is None or not hmac.compare_digest(given.credentials.encode(), api_key.encode()):
            raise HTTPException(401, "an API key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"})

    protected = APIRouter(dependencies=[] if api_key is None else [Depends(authorised)])
    metrics = CollectorRegistry()
    metrics.register(ServingCollector(service))

    @app.exception_handler(BadRequest)
    async def bad_request(_: Request, error: BadRequest) -> Response:
        content = {"detail": [{"loc": list(error.where), "msg": str(error)}]}
        headers = {"Retry-After": "1"} if error.status == 503 else None
        # ASCII, unlike JSONResponse: the request may hold half a surrogate pair.
        return Response(json.dumps(content), error.status, headers, media_type="application/json")

    @protected.post(
        "/predict",
        openapi_extra={"requestBody": describe_rows(service.model.schema, service.limits.rows)},
        responses=describe_answer(),
        summary="Score rows",
        tags=["scores"],
    )
    async def predict(request: Request) -> Response:
        """The scores of the rows, in their order. A column that is left out is missing."""
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

    @protected.post(
        "/labels",
        openapi_extra={"requestBody": LABELS},
        responses=ERRORS,
        summary="Say what was clicked",
        tags=["scores"],
    )
    async def labels(request: Request) -> dict[str, int]:
        """The labels of a request's rows, once they are known, to measure calibration. Nothing is learned."""
        try:
            async with asyncio.timeout(service.limits.seconds):
                body = await read_body(request, service.limits.body_bytes)
        except TimeoutError:
            raise BadRequest(503, f"not received within {service.limits.seconds:g} s") from None
        name, given = read_labels(read_json_object(body))
        try:
            return {"labels": service.traffic.label(name, given)}
        except UnknownRequest:
            raise BadRequest(404, f"no request {name!r} is waiting for labels", "body", "id") from None
        except ValueError as error:
            raise BadRequest(409, str(error), "body", "labels") from None

    @protected.get("/metrics", response_class=PlainTextResponse, summary="Metrics for Prometheus", tags=["state"])
    def prometheus() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    @protected.get("/drift", summary="The last rows against those of training", tags=["state"])
    def drift() -> JSONResponse:
        return JSONResponse(strict(service.drift.report()))

    @protected.get("/status", summary="What the page shows", tags=["state"])
    def status() -> JSONResponse:
        return JSONResponse(strict(service.status()))

    @protected.get("/view", include_in_schema=False)
    def viewed() -> JSONResponse:
        content = service.status()
        return JSONResponse(strict(content if view is None else view(content)))

    app.include_router(protected)

    @app.get("/healthz", summary="Whether the process answers", tags=["state"])
    async def healthz() -> dict[str, bool]:
        return {"alive": True}

    @app.get("/readyz", summary="Whether a model is live, and which", tags=["state"], responses={503: {}})
    async def readyz() -> JSONResponse:
        state = service.state()
        return JSONResponse(state, 200 if state["ready"] else 503)

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page, headers=_PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return HTMLResponse(docs, headers=_PAGE_HEADERS)

    return app


async def _predict(request: Request, service: Service) -> tuple[Response, int]:
    live = service.model.current
    if live is None:
        raise BadRequest(503, "there is no model yet: the run has not written its first checkpoint")
    body = await read_body(request, service.limits.body_bytes)
    arrow = is_arrow(request)
    read = read_arrow if arrow else read_rows
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
    return (arrow_answer if arrow else json_answer)(name, scored), len(batch)
