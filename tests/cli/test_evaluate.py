import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss

from daes.training.scoring import load_trained


def test_metrics_of_a_trained_model(daes, clicks, trained):
    result = daes("evaluate", trained, clicks, "--json")
    model, table = load_trained(trained), pq.read_table(clicks)
    from daes.stream.batch import batch_from_table

    chances = model.predict_proba(batch_from_table(table, model.schema))
    assert result.json["metrics"]["rows"] == 1200
    assert result.json["metrics"]["logloss"] == pytest.approx(log_loss(table["click"].to_numpy(), chances), rel=1e-5)
    assert result.json["undefined"] == {}
    text = daes("evaluate", trained / "model", clicks, "--limit", "500")
    assert "500 rows" in text.stdout
    assert "LogLoss" in text.stdout


def test_labels_of_one_class_are_explained(daes, clicks, trained, tmp_path):
    table = pq.read_table(clicks)
    path = tmp_path / "none.parquet"
    pq.write_table(table.set_column(0, "click", pa.array([0] * 1200)), path)
    result = daes("evaluate", trained, path)
    assert "auc is not defined: labels of one class only" in result.stdout


def test_wrong_input_is_one_sentence(refused, clicks, trained, tmp_path):
    assert "column 'age' is label and numerical" in refused("evaluate", trained, clicks, "--label", "age")
    assert "column 'id' must hold numbers" in refused("evaluate", trained, clicks, "--label", "id")
    assert "there is no file" in refused("evaluate", trained, tmp_path / "x.parquet")
    assert "no saved model in" in refused("evaluate", tmp_path, clicks)
