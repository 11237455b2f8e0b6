from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

ROWS = 6000


@pytest.fixture(scope="session")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "price": pa.array(rng.lognormal(size=ROWS), mask=rng.random(ROWS) < 0.1),
            "hour": rng.integers(0, 24, ROWS),
            "city": ["Bern", "Rome"] * (ROWS // 2),
        }
    )


@pytest.fixture(scope="session")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table as one Parquet file of many row groups, and as a folder of CSV files."""
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(table, folder / "clicks.parquet", row_group_size=500)
    (folder / "days").mkdir()
    for day in range(3):
        pa_csv.write_csv(table.slice(day * 2000, 2000), folder / "days" / f"day_{day}.csv")
    (folder / "broken").mkdir()
    (folder / "broken" / "a.csv").write_text("price,hour\n1.5,3\n")
    (folder / "broken" / "b.csv").write_text("price,hour\n1.5,3\n1.x,4\n")
    return folder
