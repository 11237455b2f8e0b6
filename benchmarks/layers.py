"""What each method costs, forward and backward, as a ratio to an EFD look-up in the same run.

Every registered method embeds the same batches of skewed columns, a tenth of some of them missing, beside
`rtdl_num_embeddings`' PiecewiseLinearEmbeddings where that is installed (it does not know missing values, so it gets
columns without). Three things are timed: a forward in `eval()` without gradients, a forward in `train()`, which
observes the batch, and that forward with its backward. A million rows are observed beforehand, so that reservoirs are
full and as busy as they are in a long stream.

Field-aware methods run three times: with no context, with 160 contexts shared by the rows (as many as Criteo's three
smallest fields make), and with a context vector per row, the gradients of which are computed too. Vectors and plain
inputs are computed, but not put into one tensor: that is up to a model. DLRM's one vector for all features comes from a
network of 512, 256 and 64 units. EFD and rtdl's PLE run a second time by `torch.compile`, where that works.

Contenders take turns, and each counts with its best turn. On the CPU time is that of the process, on CUDA that between
two events around several calls. On CUDA a training step is also made with synchronisation forbidden: whoever waits for
the device is marked.

    python benchmarks/layers.py
    python benchmarks/layers.py --device cuda --repeat 20 --out build/benchmarks/layers-cuda.json
"""

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from time import get_clock_info, perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

import daes
from daes.embedding import METHODS, Context, build_embedding
from daes.extras import MissingExtraError

NUM_CONTEXTS = 160
PHASES = ("eval forward", "train forward", "train forward + backward")
BASE = "efd"
COMPILED = (BASE, "rtdl's PLE")
INNER_CALLS = 10
"""Calls between two CUDA events."""

# Time of this process, not of the wall: on a busy machine the slow contenders would else be interrupted more often.
CLOCK = process_time if get_clock_info("process_time").resolution < 1e-6 else perf_counter

Call = Callable[[Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Sizes:
    """Rows a batch, features, dimension and bins."""

    rows: int
    features: int
    dim: int
    bins: int


@dataclass(frozen=True)
class Contender:
    """A module and how it is called on a batch; `batches` are its own."""

    name: str
    module: nn.Module
    call: Call
    batches: list[Tensor]
    context: Tensor | None = None


@dataclass(frozen=True)
class Row:
    """One contender: milliseconds and ratios to the base, by phase; whether it waits for the device, if known."""

    name: str
    milliseconds: dict[str, float]
    ratio: dict[str, float]
    synchronises: bool | None


def make_batches(sizes: Sizes, count: int, device: torch.device, seed: int) -> list[Tensor]:
    """Lognormal columns; of every other one a tenth is missing."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(count):
        values = torch.randn(sizes.rows, sizes.features, generator=generator).exp()
        holes = torch.rand(values.shape, generator=generator) < 0.1
        holes[:, ::2] = False
        batches.append(values.masked_fill(holes, torch.nan).to(device))
    return batches


def make_contenders(sizes: Sizes, device: torch.device, seen: int, seed: int) -> tuple[list[Contender], list[str]]:
    """All that are compared, and why others are not."""
    batches = make_batches(sizes, 8, device, seed)
    labels = (torch.rand(sizes.rows, generator=torch.Generator().manual_seed(seed)) < 0.3).float().to(device)
    field, left_out = [], []
    for name in METHODS:
        try:
            contexts: dict[str, Any] = {"": None}
            if METHODS[name].field_aware:
                contexts = {"": None, f", {NUM_CONTEXTS} contexts": "shared", ", a context a row": "rows"}
            for suffix, form in contexts.items():
                module = _prepared(name, sizes, batches, labels, seen)
                field.append(_contender(name + suffix, module, batches, form, seed))
        except MissingExtraError as error:
            left_out.append(f"{name} is left out: {error}")
    if find_spec("rtdl_num_embeddings") is None:
        left_out.append("rtdl's PLE is left out: rtdl_num_embeddings is not installed")
    else:
        field.append(_rtdl_contender(sizes, batches, device))
    for one in [one for one in field if one.name in COMPILED]:
        again = replace(one, name=f"{one.name}, compiled", call=torch.compile(one.call))
        try:
            _work(again, PHASES[2], 0)()
            field.append(again)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            left_out.append(f"{again.name} is left out: {str(error).splitlines()[0]}")
    return field, left_out


def _prepared(name: str, sizes: Sizes, batches: Sequence[Tensor], labels: Tensor, seen: int) -> nn.Module:
    """A method with `bins` rows or bins per feature, where that is an option, that has seen `seen` rows."""
    torch.manual_seed(0)
    options = {}
    for option in ("num_bins", "num_meta"):
        if name not in ("narydis", "ld") and option in METHODS[name].options:
            options[option] = sizes.bins
    module = build_embedding(name, sizes.features, sizes.dim, **options).to(batches[0].device)
    if module.offline:
        return module.fit(batches[0], labels)
    for batch, _ in zip(cycle(batches), range(-(-seen // sizes.rows)), strict=False):
        module.observe(batch)
    return module


def _contender(name: str, module: Any, batches: list[Tensor], form: str | None, seed: int) -> Contender:
    if form is None:
        return Contender(name, module, lambda batch: _outputs(module, batch, None), batches)
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(NUM_CONTEXTS, module.context_dim, generator=generator)
    index = torch.randint(NUM_CONTEXTS, (len(batches[0]),), generator=generator)
    device = batches[0].device
    if form == "rows":
        rows = vectors[index].to(device).requires_grad_()
        return Contender(name, module, lambda batch: _outputs(module, batch, rows), batches, rows)
    shared = Context(vectors.to(device).requires_grad_(), index.to(device))
    return Contender(name, module, lambda batch: _outputs(module, batch, shared), batches, shared.vectors)


def _outputs(module: Any, batch: Tensor, context: Tensor | Context | None) -> tuple[Tensor, ...]:
    return tuple(one for one in module.outputs(batch, context) if one is not None)


def _rtdl_contender(sizes: Sizes, batches: Sequence[Tensor], device: torch.device) -> Contender:
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings

    whole = [batch.nan_to_num(nan=1.0) for batch in batches]
    levels = torch.linspace(0, 1, sizes.bins + 1)
    bins = [column.quantile(levels).unique() for column in whole[0].cpu().T]
    module = PiecewiseLinearEmbeddings(bins, sizes.dim, activation=False, version="A").to(device)
    return Contender("rtdl's PLE", module, lambda batch: (module(batch),), whole)


def measure(field: Sequence[Contender], repeat: int, device: torch.device) -> list[Row]:
    """Each contender's best turn in each phase."""
    best = {(one.name, phase): float("inf") for one in field for phase in PHASES}
    waits = {one.name: _synchronises(one) if device.type == "cuda" else None for one in field}
    for turn in range(repeat + 1):  # the first turn warms up
        for phase in PHASES:
            for one in field[turn % len(field) :] + field[: turn % len(field)]:
                spent = _time(_work(one, phase, turn), device)
                if turn:
                    best[one.name, phase] = min(best[one.name, phase], spent)
        _say(f"turn {turn} of {repeat}")
    _say("")
    return [
        Row(
            one.name,
            {phase: 1e3 * best[one.name, phase] for phase in PHASES},
            {phase: best[one.name, phase] / best[BASE, phase] for phase in PHASES},
            waits[one.name],
        )
        for one in field
    ]


def _work(one: Contender, phase: str, turn: int) -> Callable[[], Any]:
    """What is timed: one call in the phase."""
    batch = one.batches[turn % len(one.batches)]
    one.module.train(phase != PHASES[0])
    if phase == PHASES[0]:
        return torch.no_grad()(lambda: one.call(batch))
    if phase == PHASES[1]:
        return lambda: one.call(batch)
    leaves = [*one.module.parameters(), *([] if one.context is None else [one.context])]
    gradients = [torch.ones_like(output) for output in one.call(batch) if output.requires_grad]

    def step() -> None:
        outputs = [output for output in one.call(batch) if output.requires_grad]
        torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)

    return step


def _time(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds a call."""
    if device.type != "cuda":
        start = CLOCK()
        work()
        return CLOCK() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(INNER_CALLS):
        work()
    end.record()
    torch.cuda.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3 / INNER_CALLS


def _synchronises(one: Contender) -> bool:
    """Whether training steps wait for the device; the first one is let pass, which may set things up."""
    work = _work(one, PHASES[2], 0)
    work()
    with warnings.catch_warnings():  # torch calls the mode a prototype
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            work()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def show(rows: Sequence[Row]) -> None:
    """One table."""
    base = next(row for row in rows if row.name == BASE)
    times = ", ".join(f"{phase} {base.milliseconds[phase]:.2f} ms" for phase in PHASES)
    print(f"\nTime over that of an EFD look-up ({times})")
    print(
        f"{'':28}" + "".join(f"{phase:>26}" for phase in PHASES) + ("  waits" if base.synchronises is not None else "")
    )
    for row in rows:
        note = "" if row.synchronises is None else f"  {'yes' if row.synchronises else 'no'}"
        print(f"{row.name:28}" + "".join(f"{row.ratio[phase]:26.2f}" for phase in PHASES) + note)


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured with."""
    return {
        "daes": daes.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "clock": "CUDA events" if device.type == "cuda" else CLOCK.__name__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=_positive, default=8192, help="rows per batch (8192)")
    parser.add_argument("--features", type=_positive, default=13, help="numerical features (13)")
    parser.add_argument("--dim", type=_positive, default=16, help="dimension of an embedding (16)")
    parser.add_argument("--bins", type=_positive, default=10, help="bins or meta-embeddings (10)")
    parser.add_argument("--seen", type=_positive, default=1_000_000, help="rows observed beforehand (1000000)")
    parser.add_argument("--repeat", type=_positive, default=7, help="turns; the best counts (7)")
    parser.add_argument("--threads", type=_positive, default=1, help="threads on the CPU (1)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--seed", type=int, default=0, help="of the values (0)")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/layers.json"), help="where JSON goes")
    given = parser.parse_args()

    torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    sizes = Sizes(given.rows, given.features, given.dim, given.bins)
    field, left_out = make_contenders(sizes, device, given.seen, given.seed)
    settings = f"{sizes.rows:,} rows, {sizes.features} features, dimension {sizes.dim}, {sizes.bins} bins"
    print(f"{settings}; best of {given.repeat} interleaved turns on {environment(device)['device']}.")
    for reason in left_out:
        print(reason)
    rows = measure(field, given.repeat, device)
    show(rows)

    given.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "benchmark": "layers",
        **asdict(sizes),
        "seen": given.seen,
        "repeat": given.repeat,
        "seed": given.seed,
        "environment": environment(device),
        "left_out": left_out,
        "layers": [asdict(row) for row in rows],
    }
    given.out.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    print(f"\nwrote {given.out}")


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"a positive whole number is needed, got {text}")
    return number


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
