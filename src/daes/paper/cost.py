"""The cost of DAES: throughput of training and scoring compared with EFD and AutoDis."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from daes.formatting import count, counted, percent
from daes.paper import figures
from daes.paper.data import without_folders
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.pieces import run_pieces
from daes.paper.published import BATCH_SIZE, QPS_CHANGE, RESERVOIR_SIZE
from daes.paper.result import ExperimentResult
from daes.paper.scores import method_title
from daes.paper.variants import published_model
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.table import markdown_table
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

BASELINE = "efd"
_METHODS = ("efd", "autodis", "ple", "daes-gate", "daes-tran", "daes")
JOBS = {"train": "training", "score": "scoring", "score_small": "scoring, 128 rows"}
_ROWS = 200_000
_BATCHES = 4
_SMALL_BATCH = 128
_REPEATS_PER_SEED = 4
_AGE = 10  # before it is timed, a model has observed this many times the size of its reservoir


class Cost(Experiment):
    name = "cost"
    title = "Cost: throughput of training and scoring"
    what = "throughput of training and scoring with DAES, compared with EFD and AutoDis"
    claim = "Appendix, “System Overhead”: queries per second fell by 1.8 % after the deployment."
    differs = """
    The paper measures a whole platform, in which the model is a part of each query; we measure the model alone, so the
    same cost weighs more. Each model has first observed ten times its reservoir, as in a stream that has been running
    for a while. Training is the paper's, with Adam and BatchNorm, and scoring uses the model in `eval()`; a frozen
    model for serving replaces DAES by table look-ups. [cost.md](cost.md) has what a step and a score take by the
    default's recipe. On a CPU, seconds are processor time, which other work on the machine moves little.
    """
    judged_by = "Nothing: the paper measures a whole platform, we measure the model alone."
    data = ("adstream", "flights")
    uses = ("rows", "seeds", "batch_size", "methods", "backbones", "device")

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        assert data is not None
        rows = data.sample(min(settings.rows or _ROWS, _ROWS))
        if len(rows) < _SMALL_BATCH:
            raise ValueError(f"{data.what} must have {_SMALL_BATCH} rows or more, got {len(rows)}")
        size = min(settings.batch_size or BATCH_SIZE, len(rows))
        methods = settings.methods or _METHODS
        backbone = (settings.backbones or ("deepfm",))[0]
        batches, small = _split(rows, size, _BATCHES), _split(rows, _SMALL_BATCH, 4 * _BATCHES)
        learners = {}
        for method in methods:
            execution.note(f"{data.name}: {method_title(method)}")
            learners[method] = _aged(method, backbone, data.schema, rows, settings.device)
        name = torch.cuda.get_device_name(settings.device) if settings.device.startswith("cuda") else "CPU"
        setting = {
            "data": without_folders(data.what),
            "rows": len(rows),
            "backbone": backbone,
            "batch_size": size,
            "methods": list(methods),
            "device": name,
            "threads": torch.get_num_threads(),
        }
        repeats = _REPEATS_PER_SEED * settings.seeds

        def measure(shared: None, piece: Findings, note: Any) -> Findings:
            return _measure(learners, batches, small, piece["repeat"], settings.device)

        # One at a time, whatever `jobs` says: several would slow each other down.
        found = run_pieces(
            measure,
            [{**setting, "repeat": repeat} for repeat in range(repeats)],
            replace(execution, jobs=1),
            lambda piece: f"repeat {piece['repeat']}",
        )
        return {
            **{name: setting[name] for name in ("backbone", "batch_size", "device", "threads")},
            "repeats": repeats,
            "baseline": BASELINE if BASELINE in methods else methods[0],
            "speeds": {method: {job: [one[method][job] for one in found] for job in JOBS} for method in methods},
            "parameters": {method: sum(p.numel() for p in one.model.parameters()) for method, one in learners.items()},
        }

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        rows = []
        for method, speeds in found["speeds"].items():
            row = [method_title(method), count(found["parameters"][method])]
            for job in JOBS:
                middle, low, high = (percent(value, 1, sign=True) for value in change(found, method, job))
                against = f"{middle} ({low} … {high})" if method != found["baseline"] else "–"
                row += [count(median(speeds[job])), against]
            rows.append(row)
        headers = ["method", "parameters"]
        for title in JOBS.values():
            headers += [f"{title}, rows/s", f"against {method_title(found['baseline'])}"]
        return (
            f"{result.where}; {found['device']}, {counted(found['threads'], 'thread')}, {found['backbone']}, batches "
            f"of {count(found['batch_size'])}; median of {found['repeats']} repeats in turns (quartiles in brackets). "
            f"The paper: QPS {percent(QPS_CHANGE, 1)} against its production baseline."
            f"\n\n{markdown_table(headers, rows)}"
        )

    def judge(self, result: ExperimentResult) -> Judgement:
        found = result.results
        parts = []
        for method in ("daes-gate", "daes-tran", "daes"):
            if method in found["speeds"] and method != found["baseline"]:
                train, score = (percent(change(found, method, job)[0], 1, sign=True) for job in ("train", "score"))
                parts.append(f"{method_title(method)} {train} in training, {score} in scoring")
        baseline = method_title(found["baseline"])
        return (), f"Throughput against {baseline} on {found['device']}: {'; '.join(parts) or 'no form of DAES'}."

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        found = result.results
        methods = [method for method in found["speeds"] if method != found["baseline"]]
        figure, axes = figures.panels(1, len(JOBS), 0.9 + 0.4 * len(methods) + 0.5, sharey=True)
        for panel, (job, title) in zip(axes, JOBS.items(), strict=True):
            for place, method in enumerate(methods):
                middle, low, high = (100 * value for value in change(found, method, job))
                colour = figures.BLUE if method.startswith("daes") else figures.GREY
                panel.barh(place, middle, color=colour, alpha=0.8, height=0.55)
                panel.plot([low, high], [place, place], color=figures.BLACK, linewidth=1)
                figures.at_end(panel, max(middle, high, 0), place, f"{middle:+.0f} %", None, xytext=(4, 0))
            panel.axvline(0, color=figures.GREY, linewidth=0.8)
            panel.axvline(100 * QPS_CHANGE, color=figures.VERMILION, linestyle=":", linewidth=1.4)
            figures.name_rows(panel, [method_title(method) for method in methods])
            panel.set(title=title.capitalize(), xlabel="throughput against the baseline, %")
            panel.margins(x=0.18)
        figures.headline(
            figure,
            f"Throughput against {method_title(found['baseline'])}",
            f"{result.title} · {found['device']}, {counted(found['threads'], 'thread')}, {found['backbone']}, batches "
            f"of {count(found['batch_size'])} · dotted: the paper's QPS, {percent(QPS_CHANGE, 1)}",
        )
        return figure


def _split(rows: Batch, size: int, most: int) -> list[Batch]:
    """The first complete batches of the rows."""
    return [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)[:most]]


def _aged(method: str, backbone: str, schema: Any, rows: Batch, device: str) -> TrainingStep:
    model = published_model(schema, rows, method, backbone, seed=0, device=device)
    if model.numerical is not None:
        values = torch.from_numpy(rows.numerical).to(device)
        for _ in range(-(-_AGE * RESERVOIR_SIZE // len(rows))):
            model.numerical.observe(values)
    learner = TrainingStep(model, TrainConfig(batch_size=BATCH_SIZE, optimizer="adam"))
    learner.learn(rows[:BATCH_SIZE], 0)
    learner.score(rows[:BATCH_SIZE])
    return learner


def _measure(
    learners: dict[str, TrainingStep], batches: Sequence[Batch], small: Sequence[Batch], repeat: int, device: str
) -> Findings:
    """Rows per second in one repeat: method → job → a number.

    Methods take turns, in an order that rotates with the repeat, so that other load on the machine affects all of them.
    """
    order = deque(learners)
    order.rotate(-repeat)
    speeds: Findings = {method: {} for method in learners}
    for method in order:
        learner = learners[method]
        for job, pieces in (("train", batches), ("score", batches), ("score_small", small)):
            started = _now(device)
            for batch in pieces:
                if job == "train":
                    learner.learn(batch, 0)
                else:
                    learner.score(batch)
            speeds[method][job] = sum(map(len, pieces)) / (_now(device) - started)
    return speeds


def _now(device: str) -> float:
    """Seconds: on a CPU those of the process, which other work on the machine moves little."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        return perf_counter()
    return process_time()


def change(found: Findings, method: str, job: str) -> tuple[float, float, float]:
    """Relative change of throughput against the baseline, repeat by repeat: median and quartiles."""
    ratios = np.divide(found["speeds"][method][job], found["speeds"][found["baseline"]][job]) - 1
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)
