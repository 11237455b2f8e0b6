"""Files that keep arriving in a bucket: pyarrow's S3 client against moto's server."""

import threading
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.run import train_run

pytestmark = pytest.mark.engines
SCHEMA = Schema("click", ("price",), ("city",))


class Killed(BaseException):
    pass


@pytest.fixture
def bucket(monkeypatch):
    """The file system of an S3 server, and what comes after a path in a URL of it."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
    files = fs.S3FileSystem(**options, allow_bucket_creation=True)
    files.create_dir("ads")
    yield files, "?" + "&".join(f"{name}={value}" for name, value in options.items())
    server.stop()


def put(files, path, prices):
    """A file of these prices, as its name says."""
    if path.endswith(".csv"):
        lines = [f"{number % 2},{price},city {price % 5}" for number, price in enumerate(prices)]
        with files.open_output_stream(path) as out:
            out.write("\n".join(["click,price,city", *lines, ""]).encode())
        return
    columns = {"price": [float(price) for price in prices], "city": [f"city {price % 5}" for price in prices]}
    clicks = [number % 2 for number in range(len(prices))]
    pq.write_table(pa.table({"click": clicks, **columns}), path, filesystem=files)


def train(where, out, **more):
    data = Dataset.open(where, schema=SCHEMA, follow=True, max_wait=0.1, limit=300)
    config = TrainConfig(batch_size=30, checkpoint_every=60)
    return train_run(data, out, model={"backbone": "fnn", "dim": 4}, config=config, sample_rows=60, **more)


@pytest.mark.parametrize("pattern", ["folder/", "glob/*"])
def test_files_that_keep_arriving_in_a_bucket(bucket, tmp_path, monkeypatch, pattern):
    monkeypatch.setattr("daes.stream.follow._BETWEEN_LISTINGS", 0.05)
    files, options = bucket
    folder = f"ads/{pattern.partition('/')[0]}"

    def kill(trainer, batch, logits):
        if trainer.rows == 210:
            raise Killed

    def put_all(target, folder):
        put(target, f"{folder}/day_9.csv", range(120))  # full batches, whenever a file comes
        put(target, f"{folder}/day_10.parquet", range(120, 210))

    (tmp_path / "incoming").mkdir()
    put_all(fs.LocalFileSystem(), tmp_path / "incoming")
    put(fs.LocalFileSystem(), f"{tmp_path}/incoming/day_11.csv", range(210, 300))
    local = train(tmp_path / "incoming", tmp_path / "local")

    where = f"s3://ads/{pattern}{options}"
    threading.Timer(0.5, put_all, (files, folder)).start()  # the bucket is empty at first
    with suppress(Killed):
        train(where, tmp_path / "run", callbacks=[kill])
    files.delete_file(f"{folder}/day_9.csv")  # it was read
    threading.Timer(0.5, put, (files, f"{folder}/day_11.csv", range(210, 300))).start()
    again = train(where, tmp_path / "run", resume=True)
    assert (again.resumed_at, again.result.rows) == (180, 300)
    ours, theirs = again.model.state_dict(), local.model.state_dict()
    assert all(ours[name].equal(theirs[name]) for name in theirs)
