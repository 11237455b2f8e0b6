import logging
import sys
from math import isfinite
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from daes.extras import MissingExtraError
from daes.model import CTRModel
from daes.simulation import AdStream
from daes.stream.dataset import Dataset
from daes.training.callbacks import MLflow, TensorBoard, WandB, make_callback
from daes.training.config import TrainConfig
from daes.training.run import train_run
from daes.training.trainer import StreamTrainer


def trained(*on_record, rows=2000):
    stream = AdStream(rows, seed=0)
    model = CTRModel(stream.schema, "fe", "fnn", sizes=50)
    trainer = StreamTrainer(model, TrainConfig(batch_size=200, window=500), on_record=on_record)
    return trainer.run(stream)


def test_every_record_is_passed_on_the_last_one_included():
    seen = []
    result = trained(lambda trainer, record: seen.append((trainer.rows, record)))
    assert [record for _, record in seen] == result.history
    assert [rows for rows, _ in seen] == [record["rows"] for record in result.history]
    assert seen[-1][0] == 2000


def events(folder):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = loader.EventAccumulator(str(folder))
    found.Reload()
    return found


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    result = trained(TensorBoard(tmp_path / "events"))
    found = events(tmp_path / "events")
    scalars = found.Scalars("window_auc")
    expected = [(record["rows"], record["window_auc"]) for record in result.history if isfinite(record["window_auc"])]
    np.testing.assert_allclose([(scalar.step, scalar.value) for scalar in scalars], expected, rtol=1e-6)
    assert {"auc", "logloss", "calibration", "rows_per_second"} <= set(found.Tags()["scalars"])


def test_tensorboard_of_a_resumed_run_has_every_step_once(tmp_path):
    pytest.importorskip("tensorboard")
    trained(TensorBoard(tmp_path / "events"), rows=1000)
    trained(TensorBoard(tmp_path / "events"), rows=2000)
    steps = [scalar.step for scalar in events(tmp_path / "events").Scalars("logloss")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 2000


class FakeMLflow(ModuleType):
    def __init__(self):
        super().__init__("mlflow")
        self.experiment, self.params, self.logged = None, None, []

    def set_experiment(self, name):
        self.experiment = name

    def log_params(self, params):
        assert self.params is None
        self.params = params

    def log_metrics(self, metrics, step):
        self.logged.append((step, metrics))


def test_mlflow_gets_settings_once_and_every_record(monkeypatch):
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    result = trained(MLflow("clicks"))
    assert fake.experiment == "clicks"
    assert (fake.params["embedding"], fake.params["batch_size"]) == ("fe", 200)
    assert [step for step, _ in fake.logged] == [record["rows"] for record in result.history]
    assert fake.logged[-1][1]["auc"] == result.metrics["auc"]
    assert all(isfinite(value) for _, metrics in fake.logged for value in metrics.values())


def test_wandb_gets_settings_once_and_every_record(monkeypatch):
    configs, logged, projects = [], [], []
    run = SimpleNamespace(
        config=SimpleNamespace(update=configs.append), log=lambda values, step: logged.append((step, values))
    )
    fake = ModuleType("wandb")
    fake.run = None
    fake.init = lambda project: projects.append(project) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    result = trained(WandB("clicks"))
    assert projects == ["clicks"]
    assert [config["backbone"] for config in configs] == ["fnn"]
    assert [step for step, _ in logged] == [record["rows"] for record in result.history]
    fake.run = run
    WandB()
    assert projects == ["clicks"]  # the active run is used


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_what_is_not_installed_is_named_with_its_extra(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'daes\[{name}\]'"):
        make_callback(name)


def test_a_run_in_a_folder_takes_them(tmp_path):
    seen = []
    config = TrainConfig(batch_size=200)
    data = Dataset.open("adstream:1000")
    model = {"embedding": "fe", "backbone": "lr"}
    train_run(data, tmp_path / "run", model=model, config=config, on_record=[lambda _, record: seen.append(record)])
    assert seen[-1]["rows"] == 1000


def test_records_and_skipped_batches_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="daes"):
        result = trained()
    assert len(caplog.records) == len(result.history)
    assert caplog.records[-1].name == "daes.training"
    assert caplog.messages[-1].startswith("2000 rows: AUC 0.")
    caplog.clear()
    stream = AdStream(400, seed=0)
    trainer = StreamTrainer(CTRModel(stream.schema, "fe", "lr", sizes=50), TrainConfig(bad_batch="skip"))
    trainer.step.skip(200, "the loss is nan")
    assert caplog.messages == ["the batch at row 200 is not learned from: the loss is nan"]
    assert caplog.records[0].levelname == "WARNING"


def test_nothing_is_printed_where_nobody_asked_for_logs(capfd):
    trained(rows=400)
    logging.getLogger("daes.training").warning("unseen")
    assert "unseen" not in capfd.readouterr().err
