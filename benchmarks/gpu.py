"""What the library costs on a CUDA device: layers, training steps, compiled models.

    python -m benchmarks gpu
    python -m benchmarks gpu --out build/benchmarks/speed-gpu.json --skip compiled

**Layers.** Forward and backward of a layer on one batch of skewed columns, a tenth of some missing, and what observing
it costs, a million rows after the start of a stream. A time is that of a recorded CUDA graph, as training replays them;
"call" is the time of the same work launched by Python. **Steps.** `TrainingStep.learn` of DeepFM with 26 categorical
and 13 numerical fields and all default inputs, on rows that lie in the device's memory: forward, backward, optimiser,
observing, counting, and reading the loss; bins that are cut anew and recordings that are made on the way are included.
**Compiled.** A model's scores as one graph of `torch.compile` (an error if it breaks), against the same model as it is.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import daes
from daes.embedding import Context, NumericalEmbedding, build_embedding
from daes.model import CTRModel, DeviceBatch
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

FEATURES, FIELDS, DIM, CONTEXTS = 13, 26, 16, 160
SEEN = 1_000_000
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


def layers(rows: int) -> list[dict[str, Any]]:
    """One line per layer."""
    batches = [numbers(rows, seed) for seed in range(4)]
    gradient = torch.randn(rows, FEATURES, DIM, device="cuda")
    found: list[dict[str, Any]] = [{"layer": "a copy of the output", "step": microseconds(recorded(gradient.clone))}]
    vectors = torch.randn(CONTEXTS, DIM, device="cuda", requires_grad=True)
    shared = Context(vectors, torch.randint(CONTEXTS, (rows,), device="cuda"))
    for name, context in (
        ("efd", None),
        ("daes", None),
        ("daes-gate", shared),
        ("daes-tran", shared),
        ("daes-gate", vectors.detach()[shared.index].requires_grad_()),
    ):
        method = _prepared(name, batches)
        step = _step(method, batches[0], context, gradient)
        told = {None: "", Context: f", {CONTEXTS} contexts"}.get(type(context) if context is not None else None)
        line: dict[str, Any] = {"layer": name + (", a context per row" if told is None else told)}
        line |= {"step": microseconds(recorded(step)), "call": microseconds(step)}
        if method.distributions is not None:
            known: Any = method.distributions
            known.advance(100 * rows)  # acceptances for all calls that follow
            for key, refresh in (("observe", False), ("observe and refresh", True)):
                observe = recorded(
                    lambda known=known, refresh=refresh: known.observe_ahead(batches[1], refresh=refresh)
                )
                line[key] = microseconds(observe)
            line["all"] = line["step"] + line["observe and refresh"]
        found.append(line)
        print("  ".join(f"{key} {value:.0f}" if key != "layer" else f"{value:32}" for key, value in line.items()))
    return found


def _prepared(name: str, batches: list[Tensor]) -> NumericalEmbedding:
    torch.manual_seed(0)
    method = build_embedding(name, FEATURES, DIM).cuda()
    if method.offline:
        return method.fit(batches[0])
    for number in range(-(-SEEN // len(batches[0]))):
        method.observe(batches[number % len(batches)])
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


def steps(rows: int, seen: int) -> list[dict[str, Any]]:
    """One line per method: rows/s of `learn`, after so many rows of a stream, and the loss against unrecorded steps."""
    batches = [device_rows(rows, seed) for seed in range(8)]
    turn = max(20, 2_000_000 // rows)
    found, made = [], {}
    for name in ("efd", "daes", "daes-gate"):
        step, losses = _trained(name, batches, True)
        off = max(abs(a - b) for a, b in zip(losses, _trained(name, batches, False)[1], strict=True))
        for number in range(seen // rows):
            step.learn(batches[number % 8], 0)
        made[name] = step, off
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(TURNS):
        for name, (step, _) in made.items():
            torch.cuda.synchronize()
            started = perf_counter()
            for number in range(turn):
                step.learn(batches[number % 8], 0)
            torch.cuda.synchronize()
            seconds[name].append((perf_counter() - started) / turn)
    for name, (_, off) in made.items():
        speed = rows / median(seconds[name])
        found.append({"method": name, "batch": rows, "after": seen, "rows/s": speed, "loss off by": off})
        found[-1]["of efd"] = speed / found[0]["rows/s"]
        print("  ".join(f"{key} {value:.4g}" if key != "method" else value for key, value in found[-1].items()))
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
    losses = []
    for batch in batches:
        step.learn(batch, 0)
        losses.append(step.loss)
    return step, losses


def compiled(rows: int) -> list[dict[str, Any]]:
    """Microseconds to score a batch with a model as it is, recorded, and as one compiled graph."""
    batch = device_rows(rows, 0)
    found = []
    for name in ("efd", "daes"):
        model = _trained(name, [batch], False)[0].model.eval()
        whole = torch.compile(model, fullgraph=True)

        def as_it_is(model: CTRModel = model) -> Tensor:
            return model(*batch.features)

        def as_one(whole: Any = whole) -> Tensor:
            return whole(*batch.features)

        with torch.no_grad():
            off = float((as_it_is() - as_one()).abs().max())
            line = {"method": name, "batch": rows, "as it is": microseconds(as_it_is), "compiled": microseconds(as_one)}
            line |= {"recorded": microseconds(recorded(as_it_is)), "off by": off}
            line["compiled, recorded"] = microseconds(recorded(as_one))
        found.append(line)
        print("  ".join(f"{key} {value:.4g}" if key != "method" else value for key, value in line.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/speed-gpu.json"), help="where JSON goes")
    parser.add_argument("--skip", nargs="*", choices=PARTS, default=[], help="parts to leave out")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("python -m benchmarks gpu needs a CUDA device")
    found: dict[str, Any] = {
        "command": "python -m benchmarks gpu",
        "machine": torch.cuda.get_device_name(),
        "versions": {"daes": daes.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    parts: dict[str, tuple[str, Callable[[], Any]]] = {
        "layers": ("layers, microseconds", lambda: layers(65_536)),
        "steps": ("steps", lambda: steps(8192, SEEN) + steps(65_536, SEEN) + steps(65_536, 16 * SEEN)),
        "compiled": ("scoring, microseconds", lambda: compiled(8192)),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for part, (title, measure) in parts.items():
        if part not in given.skip:
            found[title] = measure()
            given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
