"""What the library costs on a CUDA device: layers, training steps, compiled models.

    python -m benchmarks gpu
    python -m benchmarks gpu --out build/benchmarks/speed-gpu.json --skip compiled

**Layers.** Forward and backward of a layer on one batch of 65,536 rows of skewed columns, a tenth of some missing, and
what observing it costs, a million rows after the start of a stream: in a batch after which knots stay as they are, in
one after which they are refreshed, and on average over a stream of 100 million rows, by how often its schedule asks for
a refresh. A time is that of a recorded CUDA graph, as training replays them.

**Steps.** `TrainingStep.learn` of DeepFM with 26 categorical and 13 numerical fields, with evidence and recent
errors, on rows that lie in the device's memory: forward, backward, optimiser, observing, counting, and reading the
loss; bins that are cut anew and recordings that are made on the way are included.

**Compiled.** A model's scores as one graph of `torch.compile` (an error if it breaks) against the same model as it is.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from benchmarks.table import Entry, machine, number, write
from daes.embedding import Context, NumericalEmbedding, build_embedding
from daes.embedding.distributions import FeatureDistributions
from daes.model import CTRModel, DeviceBatch
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

FEATURES, FIELDS, DIM, CONTEXTS = 13, 26, 16, 160
SEEN, STREAM = 1_000_000, 100_000_000
TURNS = 5
PARTS = ("layers", "steps", "compiled")
Work = Callable[[], Any]


def numbers(rows: int, seed: int) -> Tensor:
    """Lognormal columns; of every other one a tenth is missing."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, FEATURES, generator=generator).exp()
    holes = torch.rand(values.shape, generator=generator) < 0.1
    holes[:, ::2] = False
    return values.masked_fill(holes, torch.nan).cuda()


def device_rows(rows: int, seed: int) -> DeviceBatch:
    """Rows whose clicks depend on a number and on a category; few ids are frequent."""
    generator = torch.Generator().manual_seed(seed)
    values = numbers(rows, seed)
    ids = 1 + (torch.rand(rows, FIELDS, generator=generator) ** 3 * 20_000).long()
    logit = values[:, 0].cpu().log() + 0.5 * (ids[:, 0] % 5 - 2) - 1.5
    clicks = (torch.rand(rows, generator=generator) < torch.sigmoid(logit)).float()
    return DeviceBatch(values, ids.cuda(), clicks.cuda())


def microseconds(work: Work, calls: int = 20) -> float:
    """Per call, between two events around several; the best turn."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    best = float("inf")
    for _ in range(TURNS):
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end))
    return 1e3 * best / calls


def recorded(work: Work) -> Work:
    """The work as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def layers(rows: int) -> list[Entry]:
    """Microseconds per layer, and with all of observing."""
    batches = [numbers(rows, seed) for seed in range(4)]
    gradient = torch.randn(rows, FEATURES, DIM, device="cuda")
    found = [_time("a copy of the output", microseconds(recorded(gradient.clone)))]
    vectors = torch.randn(CONTEXTS, DIM, device="cuda", requires_grad=True)
    shared = Context(vectors, torch.randint(CONTEXTS, (rows,), device="cuda"))
    own = vectors.detach()[shared.index].requires_grad_()
    share = refreshed_share(rows)
    observing, refreshing = _observing(batches)
    found += [_time("observing", observing), _time("observing, knots refreshed", refreshing)]
    found.append(Entry(f"batches of {rows:,} rows that refresh knots, of {STREAM:,} rows", share, "", higher=False))
    for name, told, context, target in (
        ("efd", "", None, None),
        ("daes", "", None, 200.0),
        ("daes-gate", f", {CONTEXTS} contexts", shared, 200.0),
        ("daes-gate", ", a context per row", own, 200.0),
        ("daes-tran", f", {CONTEXTS} contexts", shared, 450.0),
    ):
        step = microseconds(recorded(_step(_prepared(name, batches), batches[0], context, gradient)))
        found.append(_time(f"{name}{told}: forward and backward", step))
        if target is not None:
            mean = share * refreshing + (1 - share) * observing
            found.append(_time(f"{name}{told}: with observing", step + observing, target))
            found.append(_time(f"{name}{told}: with observing, knots refreshed", step + refreshing, target))
            found.append(_time(f"{name}{told}: with observing, mean of the stream", step + mean, target))
    return found


def refreshed_share(rows: int) -> float:
    """The share of batches of a long stream after which knots are refreshed."""
    known = FeatureDistributions(1)
    batches = STREAM // rows
    return sum(known.advance(rows) for _ in range(batches)) / batches


def _observing(batches: list[Tensor]) -> tuple[float, float]:
    """Microseconds to observe a batch: without and with a refresh of the knots."""
    known: Any = _prepared("daes", batches).distributions
    known.advance(100 * len(batches[0]))  # acceptances for all calls that follow
    without, refreshed = (
        microseconds(recorded(lambda refresh=refresh: known.observe_ahead(batches[1], refresh=refresh)))
        for refresh in (False, True)
    )
    return without, refreshed


def _time(what: str, spent: float, target: float | None = None) -> Entry:
    return Entry(f"layer, {what}", spent, "µs", target, higher=False)


def _prepared(name: str, batches: list[Tensor]) -> NumericalEmbedding:
    torch.manual_seed(0)
    method = build_embedding(name, FEATURES, DIM).cuda()
    if method.offline:
        return method.fit(batches[0])
    for place in range(-(-SEEN // len(batches[0]))):
        method.observe(batches[place % len(batches)])
    method.observe_in_forward = False
    return method.train()


def _step(method: NumericalEmbedding, batch: Tensor, context: Tensor | Context | None, gradient: Tensor) -> Work:
    leaves = list(method.parameters())
    if context is not None:
        leaves.append(context.vectors if isinstance(context, Context) else context)

    def step() -> None:
        fields, _ = method.outputs(batch, context)
        torch.autograd.grad(fields, leaves, gradient, allow_unused=True)

    return step


def steps(rows: int, seen: int) -> list[Entry]:
    """Rows/s of `learn` after so many rows of a stream, its ratio to EFD's, and the loss against unrecorded steps."""
    batches = [device_rows(rows, seed) for seed in range(8)]
    turn = max(20, 2_000_000 // rows)
    made, found = {}, []
    where = f"batch {rows:,} after {seen:,} rows"
    for name in ("efd", "daes", "daes-gate"):
        step, losses = _trained(name, batches, True)
        if seen == SEEN:
            others = _trained(name, batches, False)[1]
            off = max(abs(one - other) for one, other in zip(losses, others, strict=True))
            found.append(Entry(f"loss of recorded steps off by, {name}, batch {rows:,}", off, "", 1e-3, higher=False))
        for place in range(seen // rows):
            step.learn(batches[place % len(batches)], 0)
        made[name] = step
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(TURNS):
        for name, step in made.items():
            torch.cuda.synchronize()
            started = perf_counter()
            for place in range(turn):
                step.learn(batches[place % len(batches)], 0)
            torch.cuda.synchronize()
            seconds[name].append((perf_counter() - started) / turn)
    speed = {name: rows / median(spent) for name, spent in seconds.items()}
    for name, found_speed in speed.items():
        target = {8192: 5e6, 65_536: 1e7}[rows] if name == "daes" else None
        found.append(Entry(f"learn, {name}, {where}", found_speed, "rows/s", target))
    found.append(Entry(f"learn, daes over EFD, {where}", speed["daes"] / speed["efd"], "×", 0.97))
    return found


def _model(name: str, batch: DeviceBatch) -> CTRModel:
    torch.manual_seed(0)
    schema = Schema(
        "click", tuple(f"number {i}" for i in range(FEATURES)), tuple(f"category {i}" for i in range(FIELDS))
    )
    model = CTRModel(schema, name, "deepfm", dim=DIM, sizes=10_000).cuda()
    if model.numerical is not None and model.numerical.offline:
        model.numerical.fit(batch.numerical)
    return model


def _trained(name: str, batches: list[DeviceBatch], graphs: bool) -> tuple[TrainingStep, list[float]]:
    step = TrainingStep(_model(name, batches[0]), TrainConfig(batch_size=len(batches[0]), cuda_graphs=graphs))
    step.correcting = True
    losses = []
    for batch in batches:
        step.learn(batch, 0)
        losses.append(step.loss)
    return step, losses


def compiled(rows: int) -> list[Entry]:
    """Microseconds to score a batch, recorded: with a model as it is, and as one compiled graph."""
    batch = device_rows(rows, 0)
    found = []
    for name in ("efd", "daes"):
        model = _trained(name, [batch], False)[0].model.eval()
        for how, scorer in (("as it is", model), ("compiled", torch.compile(model, fullgraph=True))):
            with torch.no_grad():
                spent = microseconds(recorded(lambda scorer=scorer: scorer(*batch.features)))
            found.append(Entry(f"scoring, {name}, batch {rows:,}, {how}", spent, "µs", higher=False))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where JSON goes (docs/results/speed-gpu.json and README.md)")
    parser.add_argument("--skip", nargs="*", choices=PARTS, default=[], help="parts to leave out")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("python -m benchmarks gpu needs a CUDA device")
    parts: dict[str, Callable[[], list[Entry]]] = {
        "layers": lambda: layers(65_536),
        "steps": lambda: steps(8192, SEEN) + steps(65_536, SEEN) + steps(65_536, 16 * SEEN),
        "compiled": lambda: compiled(8192),
    }
    entries: list[Entry] = []
    for part, measure in parts.items():
        if part not in given.skip:
            entries += measure()
            for entry in entries:
                print(f"{entry.what:64} {number(entry.value):>12} {entry.unit}")
    write("gpu", entries, machine("cuda"), given.out)


if __name__ == "__main__":
    main()
