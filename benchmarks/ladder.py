"""What each change from the published DAES to today's default is worth, one change per rung, on real streams.

Every rung trains in one pass, each batch scored before it is learned from; AUC over the second half and over the whole
stream, one seed unless asked for more. Rivals are trained exactly as the default is, with and without its inputs.

The streams are files in one folder, each with a column `label` (docs/why.md says what they are); `flights` comes with
the package's extra `datasets`. Streams that are not there are left out.

    python benchmarks/ladder.py --folder data --jobs 16 --out docs/results/ladder.json
    python benchmarks/ladder.py --show docs/results/ladder.json
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from typing import Any

EXCLUDED = {"hotel_bookings": ["arrival_date"], "nyc_green_tip": ["pickup"], "weather_aus": ["date"]}
"""Columns that spell out the clock."""

STREAMS = (
    "criteo_137k",
    "flights",
    "kddcup12_click",
    "hotel_bookings",
    "nyc_green_tip",
    "bank_marketing",
    "weather_aus",
)
BACKBONES = ("deepfm", "dcnv2")

NORMED = {"backbone_options": {"dropout": 0.2, "batch_norm": True}}
ADAM = {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 256}


@dataclass(frozen=True)
class Rung:
    """What is trained under a label; `train` without a batch size takes the default's, which goes by the rows."""

    label: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


SAME = {"plain": ["score", "value"]}
RUNGS = (
    Rung("published gate", "daes-gate", {}, {"evidence": False, **NORMED}, ADAM),
    Rung("+ hats, 100 knots, linear path", "daes", {"plain": []}, {"evidence": False, **NORMED}, ADAM),
    Rung("+ plain inputs", "daes", {}, {"evidence": False, **NORMED}, ADAM),
    Rung("+ no BatchNorm, no dropout", "daes", {}, {"evidence": False}, ADAM),
    Rung("+ Adagrad 0.03", "daes", {}, {"evidence": False}, {"batch_size": 256}),
    Rung("+ batch size by rows", "daes", {}, {"evidence": False}),
    Rung("+ evidence (the default)", "daes"),
    Rung("+ 30 pairs", "daes", {}, {"evidence": {"pairs": 30}}),
)
RIVALS = (
    Rung("EFD", "efd", {}, {"evidence": False}),
    Rung("EFD, same inputs", "efd", SAME),
    Rung("FE", "fe", {}, {"evidence": False}),
    Rung("FE, same inputs", "fe", SAME),
    Rung("PLE", "ple", {}, {"evidence": False}),
    Rung("PLE, same inputs", "ple", SAME),
)
DEFAULT = "+ evidence (the default)"


def run_one(folder: Path, stream: str, backbone: str, rung: Rung, seed: int) -> dict[str, Any]:
    """One trial: its scores, or the error that ended it."""
    import torch

    from daes.experiments.trial import Trial, run_trial
    from daes.stream import Dataset
    from daes.training.config import TrainConfig, suggest_batch_size

    torch.set_num_threads(1)
    where = {"stream": stream, "backbone": backbone, "label": rung.label, "seed": seed}
    try:
        data = open_stream(Dataset, folder, stream)
        train = {"batch_size": suggest_batch_size(data.num_rows), **rung.train}
        trial = Trial(
            rung.label,
            rung.method,
            backbone,
            seed,
            train=TrainConfig(bad_batch="skip", **train),
            model={**rung.model, "embedding_options": rung.options},
        )
        result = run_trial(trial, data)
    except Exception as error:
        return {**where, "error": f"{type(error).__name__}: {error}"}
    if result.error is not None:
        return {**where, "error": result.error}
    measured = {name: result.metrics[name] for name in ("auc", "half_auc", "logloss", "half_logloss")}
    return {**where, **measured, "batch_size": train["batch_size"], "rows": result.rows, "seconds": result.seconds}


def open_stream(dataset: Any, folder: Path, stream: str) -> Any:
    """The stream as a dataset."""
    if stream == "flights":
        return dataset.open("flights")
    return dataset.open(str(folder / f"{stream}.parquet"), label="label", exclude=EXCLUDED.get(stream, []))


def run_all(
    folder: Path, streams: Sequence[str], backbones: Sequence[str], seeds: int, jobs: int
) -> list[dict[str, Any]]:
    """All trials, in processes of their own."""
    places = [
        (folder, stream, backbone, rung, seed)
        for stream in streams
        for rung in (*RIVALS, *reversed(RUNGS))
        for backbone in backbones
        for seed in range(seeds)
    ]
    found = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_one, *place) for place in places]):
            found.append(done.result())
            if "error" in found[-1]:
                print(found[-1], file=sys.stderr)
            print(f"\r{len(found)} of {len(places)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def scores(found: Sequence[dict[str, Any]], measure: str) -> dict[str, dict[tuple[str, str], float]]:
    """Label → (stream, backbone) → mean over seeds."""
    values: dict[str, dict[tuple[str, str], list[float]]] = {}
    for one in found:
        if "error" not in one:
            cell = values.setdefault(one["label"], {}).setdefault((one["stream"], one["backbone"]), [])
            cell.append(one[measure])
    return {label: {cell: mean(seeds) for cell, seeds in cells.items()} for label, cells in values.items()}


def change(one: dict[tuple[str, str], float], other: dict[tuple[str, str], float]) -> str:
    """The median difference over the cells that both have, and in how many of them the first is ahead."""
    differences = [one[cell] - other[cell] for cell in one if cell in other]
    ahead = sum(difference > 0 for difference in differences)
    return f"{median(differences):+.4f} ({ahead}/{len(differences)})"


def show(found: Sequence[dict[str, Any]]) -> str:
    """The tables as Markdown: AUC over the second half per stream (mean over backbones), and changes."""
    half, whole = scores(found, "half_auc"), scores(found, "auc")
    streams = [stream for stream in STREAMS if any(one["stream"] == stream for one in found)]
    lines = [
        f"| rung | {' | '.join(streams)} | second half | whole stream |",
        "| --- |" + " --- |" * (len(streams) + 2),
    ]
    before = None
    for rung in (*RUNGS, *RIVALS):
        cells = half.get(rung.label)
        if not cells:
            continue
        row = [mean(value for (name, _), value in cells.items() if name == stream) for stream in streams]
        against = before if rung in RUNGS else DEFAULT
        moved = ["", ""]
        if against is not None and against in half:
            moved = [change(values[rung.label], values[against]) for values in (half, whole)]
        lines.append(f"| {rung.label} | {' | '.join(f'{value:.4f}' for value in row)} | {' | '.join(moved)} |")
        before = rung.label if rung in RUNGS else None
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("data"), help="where the streams are (data)")
    parser.add_argument("--backbones", default=",".join(BACKBONES), help="names, comma-separated")
    parser.add_argument("--seeds", type=int, default=1, help="seeds per trial (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, one thread each")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/ladder.json"), help="where JSON goes")
    parser.add_argument("--show", type=Path, help="print the tables of a result and run nothing")
    given = parser.parse_args()
    if given.show is not None:
        print(show(json.loads(given.show.read_text())["trials"]))
        return
    from daes.experiments.fingerprint import code_fingerprint

    streams = [name for name in STREAMS if name == "flights" or (given.folder / f"{name}.parquet").is_file()]
    found = run_all(given.folder, streams, given.backbones.split(","), given.seeds, given.jobs)
    found.sort(key=lambda one: (one["stream"], one["backbone"], one["label"], one["seed"]))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    content = {"benchmark": "ladder", "code": code_fingerprint(), "seeds": given.seeds, "trials": found}
    given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(show(found))
    print(f"\nwrote {given.out}")


if __name__ == "__main__":
    main()
