"""Runs on streams that do not end."""

import json
import os
import signal

import numpy as np
import pytest

from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.run import train_run

SCHEMA = Schema("click", ("price", "age"), ("city",))
CONFIG = TrainConfig(batch_size=50, checkpoint_every=200, window=500)
MODEL = {"backbone": "fnn", "dim": 4}


class Killed(BaseException):
    pass


def rows(count, seed=0):
    random = np.random.default_rng(seed)
    price = random.lognormal(size=count)
    click = random.random(count) < 1 / (1 + price)
    return [
        {"click": int(click[n]), "price": round(float(price[n]), 4), "age": n % 60, "city": f"city {n % 7}"}
        for n in range(count)
    ]


def write_files(folder, count=1000, each=130):
    folder.mkdir()
    made = rows(count)
    for start in range(0, count, each):
        lines = [",".join(map(str, row.values())) for row in made[start : start + each]]
        (folder / f"part_{start}.csv").write_text("\n".join(["click,price,age,city", *lines]) + "\n")


def train(folder, out, limit=1000, model=MODEL, **more):
    data = Dataset.open(folder, schema=SCHEMA, follow=True, max_wait=0.5, limit=limit)
    return train_run(data, out, model=dict(model), config=CONFIG, sample_rows=300, **more)


def results(out):
    metrics = json.loads((out / "metrics.json").read_text())
    monitor = json.loads((out / "monitor.json").read_text())
    return metrics["rows"], metrics["metrics"], monitor["click_rate"], monitor["features"]


def at(rows, act):
    def callback(trainer, batch, logits):
        if trainer.rows == rows:
            act()

    return callback


def kill():
    raise Killed


def test_a_live_run_that_is_killed_goes_on_to_the_same_result(tmp_path):
    write_files(tmp_path / "in")
    whole = train(tmp_path / "in", tmp_path / "whole")
    for killed_at in (50, 350, 800):
        with pytest.raises(Killed):
            train(tmp_path / "in", tmp_path / "run", resume=True, callbacks=[at(killed_at, kill)])
        # What was read may be archived meanwhile: neither the model nor the position asks for it.
        if killed_at == 800:
            (tmp_path / "in" / "part_0.csv").unlink()
    run = train(tmp_path / "in", tmp_path / "run", resume=True)
    assert run.resumed_at == 600
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    ours, theirs = run.model.state_dict(), whole.model.state_dict()
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def test_a_signal_is_the_end_of_a_live_run(tmp_path):
    write_files(tmp_path / "in", 300)
    stopped = train(
        *(tmp_path / "in", tmp_path / "run", None),
        on_wait=[lambda trainer: os.kill(os.getpid(), signal.SIGTERM)],
    )
    assert stopped.stopped == "stopped by SIGTERM after 300 rows; a checkpoint has all of it"
    assert results(tmp_path / "run")[0] == 300
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    write_files(tmp_path / "more", 130)
    (tmp_path / "more" / "part_0.csv").rename(tmp_path / "in" / "part_1000.csv")
    again = train(tmp_path / "in", tmp_path / "run", 430, resume=True)
    assert (again.resumed_at, again.result.rows, again.stopped) == (300, 430, None)


def test_a_live_run_is_resumed_as_it_was_configured(tmp_path):
    write_files(tmp_path / "in")
    sizes = train(tmp_path / "in", tmp_path / "run", 300).model.sizes
    for change, said in (
        ({"dim": 8}, "started with model.dim=4 and cannot be resumed with 8"),
        ({"embedding": "fe"}, "started with model.embedding='daes' and cannot be resumed with 'fe'"),
        ({"sizes": 7}, r"started with model.sizes.city=\d+ and cannot be resumed with 7"),
        ({"context": None}, r"started with model.context=\['city'\] and cannot be resumed with \[\]"),
        ({"evidence": False}, "started with model.evidence="),
    ):
        with pytest.raises(ValueError, match=said):
            train(tmp_path / "in", tmp_path / "run", 400, {**MODEL, **change}, resume=True)
    same = {**MODEL, "sizes": sizes, "context": ["city"]}  # what was chosen by the first rows, spelled out
    assert train(tmp_path / "in", tmp_path / "run", 400, same, resume=True).resumed_at == 300


def test_where_a_live_run_began_is_in_its_first_checkpoint(tmp_path):
    write_files(tmp_path / "in")
    with pytest.raises(Killed):
        train(tmp_path / "in", tmp_path / "run", callbacks=[at(50, kill)])
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == [
        "step-000000000000.safetensors"
    ]
