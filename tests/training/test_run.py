import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.dataset import Dataset
from daes.stream.files import DataFile
from daes.training.config import TrainConfig
from daes.training.run import train_run


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_run_opens_its_file_once(tmp_path, monkeypatch, prefetch):
    opened = []
    genuine = DataFile.open
    monkeypatch.setattr(DataFile, "open", lambda file: opened.append(file.name) or genuine(file))
    random = np.random.default_rng(0)
    table = pa.table({"click": random.integers(0, 2, 1000), "price": random.lognormal(size=1000), "city": ["a"] * 1000})
    pq.write_table(table, tmp_path / "clicks.parquet")
    data = Dataset.open(tmp_path / "clicks.parquet", limit=900)
    assert data.num_rows == 900
    data.fingerprint()
    config = TrainConfig(batch_size=100)
    run = train_run(data, tmp_path / "run", model={"backbone": "fnn"}, config=config, prefetch=prefetch)
    assert run.result.rows == 900
    assert opened == ["clicks.parquet"]
