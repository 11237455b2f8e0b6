import sys
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.engines.base import EngineError
from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.run import train_run

pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("ray_cluster")]
ray = pytest.importorskip("ray", reason="ray is not installed")
try:  # Ray's threads import it at once, and where it cannot be imported, one of them may find half of it
    import fsspec.implementations.http  # noqa: F401
except ImportError:
    sys.modules["fsspec.implementations.http"] = None
ROWS = 9000
MODEL = {"backbone": "fnn", "dim": 4, "evidence": {"recent": 50.0}}  # less than a step: scores wait to be exchanged
CONFIG = TrainConfig(batch_size=100, window=1000, sync_every=400, checkpoint_every=1000)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """Nine files of very different sizes, so that tasks would end in another order."""
    folder = tmp_path_factory.mktemp("clicks")
    random = np.random.default_rng(0)
    price = random.lognormal(size=ROWS)
    table = pa.table({"click": (random.random(ROWS) < 1 / (1 + price)).astype(np.int8), "price": price})
    cuts = [0, 4000, 4010, 4020, 6000, 6001, 6500, 8990, 8995, ROWS]
    for number, (start, stop) in enumerate(pairwise(cuts)):
        pq.write_table(table.slice(start, stop - start), folder / f"{number}.parquet")
    return folder


def _doubled(rows):
    time.sleep(0.2 if len(rows["price"]) > 1000 else 0)
    return {**rows, "twice": 2 * rows["price"]}


def test_rows_positions_and_order(clicks):
    from daes.engines.ray_data import RaySource

    source = RaySource(ray.data.read_parquet(str(clicks)).map_batches(_doubled, batch_size=None))
    data = Dataset.open(source)
    expected = Dataset.open(clicks).sample(ROWS)
    assert data.schema.numerical == ("price", "twice")
    assert data.num_rows == ROWS
    np.testing.assert_array_equal(data.sample(ROWS).numerical[:, 0], expected.numerical[:, 0])
    batches = data.iter_batches(data.schema, 130)
    for _ in range(40):
        next(batches)
    position = data.position()
    assert position["row"] == 5200
    rest = next(batches)
    again = Dataset.open(source)
    again.seek(position)
    assert next(again.iter_batches(again.schema, 130)).equals(rest)


def test_a_killed_worker_is_replaced_and_the_run_is_that_of_files(clicks, tmp_path, kill_a_worker):
    from daes.engines.ray_data import train_dataset

    out = tmp_path / "run"
    killed = kill_a_worker(out)
    run = train_dataset(ray.data.read_parquet(str(clicks)), out, model=MODEL, config=CONFIG)
    assert killed()
    assert (run.read("metrics")["rows"], run.read("metrics")["world_size"]) == (ROWS, 2)
    train_run(Dataset.open(clicks), tmp_path / "files", model=MODEL, config=CONFIG)
    ours, files = (CheckpointStore(RunFolder(path).checkpoints).load().state for path in (out, tmp_path / "files"))
    assert ours["extra"]["consumed"]["checksums"] == files["extra"]["consumed"]["checksums"]
    for name in ("slots", "count"):
        name = f"numerical.distributions.{name}"
        np.testing.assert_array_equal(ours["step"]["model"][name], files["step"]["model"][name])
    other_order = ray.data.read_parquet(sorted(map(str, clicks.iterdir()), reverse=True))
    with pytest.raises(EngineError, match="does not begin with the 9,000 rows that the run has read"):
        train_dataset(other_order, out, model=MODEL, config=CONFIG, resume=True)


def test_what_is_wrong_is_said_once(clicks, tmp_path):
    from daes.engines.ray_data import train_dataset

    dataset = ray.data.read_parquet(str(clicks))
    with pytest.raises(EngineError, match="no column 'klick'"):
        train_dataset(dataset, tmp_path / "run", columns={"label": "klick"}, model=MODEL)
    with pytest.raises(ValueError, match="overwrite"):
        train_dataset(dataset, tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run").exists()
