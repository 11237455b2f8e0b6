import json
from copy import copy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.paper import EXPERIMENTS, Execution, Experiment, ExperimentResult, ExperimentSettings, figures
from daes.paper.data import describe
from daes.paper.result import command_of, settings_of, versions
from daes.storage.run_folder import plain
from daes.stream.dataset import Dataset
from daes.stream.datasets.criteo import CRITEO

ROWS = 3000


@pytest.fixture(scope="session")
def criteo(tmp_path_factory) -> Dataset:
    """A small file with Criteo's columns: clustered integers, long tails, missing values, some signal."""
    rng = np.random.default_rng(0)
    columns = {"label": pa.array(rng.integers(0, 2, ROWS))}
    for place, name in enumerate(CRITEO.numerical):
        values = np.floor(rng.lognormal(1 + place % 3, 1, ROWS)) if place % 2 else rng.lognormal(3, 2, ROWS)
        columns[name] = pa.array(values, mask=rng.random(ROWS) < 0.1)
    for place, name in enumerate(CRITEO.categorical):
        columns[name] = pa.array([f"{code:08x}" for code in rng.integers(0, 3 + 5 * place, ROWS)])
    path = tmp_path_factory.mktemp("criteo") / "train.parquet"
    pq.write_table(pa.table(columns), path)
    return Dataset.open(f"criteo:{path}")


@pytest.fixture
def execution(tmp_path) -> Execution:
    return Execution(tmp_path / "work")


def make_result(name: str, findings: dict, settings: ExperimentSettings, data: str | None = None) -> ExperimentResult:
    """A result as it would be read from a file."""
    experiment = EXPERIMENTS[name]
    return ExperimentResult(
        name,
        None if data is None else describe(Dataset.open(data, limit=settings.rows)),
        settings_of(experiment, settings),
        command_of(experiment, settings, data),
        versions(),
        1.0,
        json.loads(json.dumps(plain(findings))),
    )


def changed(name: str, **parts: object) -> Experiment:
    """An experiment with other attributes or methods."""
    experiment = copy(EXPERIMENTS[name])
    vars(experiment).update(parts)
    return experiment


def show(result: ExperimentResult, folder: Path) -> tuple[str, str]:
    """The Markdown and the verdict; the figure is drawn and must be a picture of a readable size."""
    from PIL import Image

    experiment = EXPERIMENTS[result.experiment]
    with figures.style():
        path = figures.save(experiment.draw(result), folder / "figure.png")
    with Image.open(path) as image:
        assert image.width >= 1000
        assert image.height >= 250
        assert np.unique(np.asarray(image.convert("L"))).size > 10
    assert path.stat().st_size < 150_000
    return experiment.markdown(result), experiment.verdict(result)


def run_and_show(
    name: str, settings: ExperimentSettings, data: Dataset | None, execution: Execution
) -> tuple[dict, str, str]:
    experiment = EXPERIMENTS[name]
    findings = experiment.run(settings, data, execution)
    result = make_result(name, findings, settings, None if data is None else data.what)
    return result.results, *show(result, execution.folder.parent)
