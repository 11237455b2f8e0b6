import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from daes.cli.app import build_app


@pytest.fixture(scope="session")
def clicks(tmp_path_factory):
    """A Parquet file of 1,200 rows: click, price, age, city, device, id."""
    random = np.random.default_rng(0)
    price, age = random.lognormal(size=1200), random.integers(18, 90, 1200)
    click = (random.random(1200) < 1 / (1 + price)).astype(np.int8)
    columns = {
        "click": click,
        "price": pa.array(price, mask=random.random(1200) < 0.1),
        "age": age,
        "city": pa.array([f"city {number}" for number in random.integers(0, 30, 1200)]),
        "device": pa.array(np.array(["phone", "tablet", "desk"])[random.integers(0, 3, 1200)]),
        "id": pa.array([f"row {number}" for number in range(1200)]),
    }
    path = tmp_path_factory.mktemp("data") / "clicks.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def daes():
    """Run the program; `daes(…)` gives the result, `.json` what it printed."""

    def run(*arguments):
        result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments], prog_name="daes")
        result.json = json.loads(result.stdout) if "--json" in arguments and result.exit_code == 0 else None
        return result

    return run


@pytest.fixture
def refused(daes):
    """Run the program with wrong input: one sentence on stderr, nothing on stdout, the code."""

    def run(*arguments, code=2):
        result = daes(*arguments)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert result.stderr.startswith("daes: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr
        return result.stderr

    return run


@pytest.fixture(scope="session")
def trained(clicks, tmp_path_factory):
    """A folder of `daes train` on the clicks."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", str(clicks), "--exclude", "id", "--batch-size", "100", "--backbone", "fnn", "--no-report"]
    result = CliRunner().invoke(build_app(), [*arguments, "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder
