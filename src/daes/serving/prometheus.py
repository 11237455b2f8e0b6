"""What a server has done, as metrics for Prometheus."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from daes.serving.traffic import LATENCIES

if TYPE_CHECKING:
    from daes.serving.service import Service

_EVERY = 4  # of the latency bins: enough for Prometheus


class ServingCollector(Collector):
    """Reads all metrics from a `Service` when they are collected; nothing is counted twice."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def describe(self) -> Iterator[Metric]:
        """No metrics are known before the first collection."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        traffic, model = self._service.traffic, self._service.model
        requests = CounterMetricFamily("daes_requests", "Requests to /predict, by status.", labels=["status"])
        for status, number in sorted(traffic.by_status.items()):
            requests.add_metric([str(status)], number)
        yield requests
        yield CounterMetricFamily("daes_rows", "Rows that were scored.", value=traffic.rows)
        yield self._latency()
        yield GaugeMetricFamily("daes_rows_waiting", "Rows that wait.", value=self._service.batcher.waiting)
        yield CounterMetricFamily("daes_model_changes", "Models that went live.", value=model.changes)
        yield CounterMetricFamily("daes_model_refused", "Models that were refused.", value=model.refusals)
        live = model.current
        if live is not None:
            age = max(0.0, time.time() - live.version.modified / 1e9)
            yield GaugeMetricFamily("daes_model_age_seconds", "Time since the model was written.", value=age)
            yield GaugeMetricFamily("daes_model_rows", "Rows that it has learned from.", value=live.rows or 0)
        yield CounterMetricFamily("daes_labels", "Labels that came back.", value=traffic.labels.count)
        yield from self._drift()

    def _latency(self) -> Metric:
        family = HistogramMetricFamily("daes_request_seconds", "From a request to its answer.")
        cumulative = np.cumsum(self._service.traffic.latencies)
        bounds = range(_EVERY - 1, len(LATENCIES), _EVERY)
        buckets = [(f"{LATENCIES[index]:.6g}", float(cumulative[index])) for index in bounds]
        family.add_metric([], [*buckets, ("+Inf", float(cumulative[-1]))], self._service.traffic.latency_sum)
        return family

    def _drift(self) -> Iterator[Metric]:
        report = self._service.drift.report()
        psi = GaugeMetricFamily("daes_drift_psi", "PSI of the last rows against those of training.", labels=["column"])
        missing = GaugeMetricFamily("daes_missing_share", "Missing values among the last rows.", labels=["column"])
        unseen = GaugeMetricFamily("daes_unseen_share", "Unseen ids among the last rows.", labels=["column"])
        for name, column in {**report.get("numerical", {}), **report.get("categorical", {})}.items():
            for family, kind in ((psi, "psi"), (missing, "missing"), (unseen, "unseen")):
                if column.get(kind) is not None:
                    family.add_metric([name], column[kind])
        alarms = len(report.get("alarms", []))
        yield from (psi, missing, unseen)
        yield GaugeMetricFamily("daes_drift_alarms", "Reasons to doubt that traffic is what was learned.", value=alarms)
