import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from daes.engines import start_engine
from daes.engines.base import Engine
from daes.storage.checkpoint import CheckpointStore

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


def _worker_processes() -> list[int]:
    """The processes of Ray Train's workers that this process has started."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"RayTrainWorker" not in (folder / "cmdline").read_bytes():
                continue
            ancestor = int(folder.name)
            while ancestor > 1 and ancestor != os.getpid():
                ancestor = parent(ancestor)
        except OSError:
            continue  # it has ended meanwhile
        if ancestor == os.getpid():
            found.append(int(folder.name))
    return found


@pytest.fixture
def kill_a_worker() -> Callable[[Path], Callable[[], list[int]]]:
    """Kill a worker of Ray Train once the run has a checkpoint; a function that waits for that, and says which."""

    def start(run: Path) -> Callable[[], list[int]]:
        killed: list[int] = []
        end = time.monotonic() + 300

        def kill() -> None:
            while not CheckpointStore(run / "checkpoints").steps() and time.monotonic() < end:
                time.sleep(0.02)
            killed.extend(_worker_processes()[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()

        def wait() -> list[int]:
            killer.join(300)
            return killed

        return wait

    return start


@pytest.fixture(scope="module")
def ray_engine() -> Iterator[Engine]:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    yield start_engine("ray")
    ray.shutdown()


@pytest.fixture(scope="module")
def spark_engine() -> Iterator[Engine]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    made = start_engine("spark")
    yield made
    made.session.stop()


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """Ray with enough CPUs for three workers."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from daes.engines.ray import start_ray

    start_ray(num_cpus=4)
    yield
    ray.shutdown()
