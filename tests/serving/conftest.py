"""A small run with numbers and categories, finished and in the midst of training."""

import numpy as np
import pyarrow as pa
import pytest

from daes.stream.batch import batch_from_table
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.run import train_run

SCHEMA = Schema("click", ("price", "age"), ("city", "device"))


def click_table(rows=2000, seed=0, *, price=1.0):
    """Rows in which clicks depend on the price and the city."""
    random = np.random.default_rng(seed)
    cost = random.lognormal(size=rows) * price
    city = random.integers(0, 12, rows)
    chance = 0.7 / (1 + cost) * (0.4 + 0.6 * (city % 3 == 0))
    return pa.table(
        {
            "click": (random.random(rows) < chance).astype(np.int8),
            "price": pa.array(cost, mask=random.random(rows) < 0.1),
            "age": random.integers(18, 90, rows),
            "city": pa.array([f"city {number}" for number in city], mask=random.random(rows) < 0.05),
            "device": random.integers(0, 4, rows),
        }
    )


def train(folder, rows=2000, *, seed=0, **options):
    """A finished run in `folder`."""
    data = Dataset.open(click_table(rows, seed), schema=SCHEMA)
    arguments = {"backbone": "fnn", "dim": 4, "embedding_options": {"reservoir_size": 1000}, **options}
    return train_run(data, folder, model=arguments, config=TrainConfig(batch_size=100, window=500), prefetch=0)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("serving") / "run"
    train(folder)
    return folder


@pytest.fixture(scope="session")
def requests():
    """Rows as a client sends them: with missing values, columns left out, unseen ids and other types."""
    rows = click_table(40, seed=7).drop_columns(["click"]).to_pylist()
    rows += [
        {},
        {"price": None, "city": None},
        {"price": 1, "age": 40.5, "city": "Zürich, Schweiz", "device": "2"},
        {"price": float("inf"), "age": -1e300, "city": "city 3", "device": 2.0},
        {"price": True, "age": 10**400, "city": 0.5, "device": True},
        {"price": 3.5, "city": "", "device": "3.0"},
    ]
    return rows


@pytest.fixture(scope="session")
def rows_of():
    """Rows of the kind that the run was trained on, as a batch; `price` multiplies their prices."""
    return lambda rows=3000, seed=5, **options: batch_from_table(click_table(rows, seed, **options), SCHEMA)


@pytest.fixture(scope="session")
def train_in():
    """A function that trains a run in a folder, with arguments of the model."""
    return train
