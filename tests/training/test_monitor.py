import json
from dataclasses import replace

import numpy as np
import pytest

from daes.distribution import ks_statistic, psi
from daes.storage.nested_state import decode_state, encode_state
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.stream.source import BatchSource
from daes.training.config import TrainConfig
from daes.training.monitor import Monitor
from daes.training.trainer import StreamTrainer

SMALL = {"reference_rows": 500, "segment_rows": 200, "most_segments": 8}


def watch(model, rows, schema, monitor, *, size=100, **options):
    scores = []
    callbacks = [monitor, lambda trainer, batch, logits: scores.append(logits)]
    config = TrainConfig(batch_size=size, learning_rate=0.01, **options)
    StreamTrainer(model, config, callbacks=callbacks, extra={"monitor": monitor}).run(BatchSource(rows, schema))
    return np.concatenate(scores).astype(np.float64)


@pytest.fixture
def drifting(make_rows):
    rows = make_rows(3000)
    rows.numerical[:, 0] *= np.linspace(1, 3, 3000, dtype=np.float32)
    return rows


def test_each_segment_is_summed_up(make_model, drifting, schema):
    monitor = Monitor(schema, **{**SMALL, "most_segments": 100})
    scores = watch(make_model(), drifting, schema, monitor)
    found = monitor.to_dict()
    assert found["rows"] == list(range(200, 3001, 200))
    assert found["reference_rows"] == 500
    reference = drifting.numerical[:500].astype(np.float64)
    for segment, end in enumerate(found["rows"]):
        part = drifting[end - 200 : end]
        for place, name in enumerate(schema.numerical):
            series = found["features"][name]
            values = part.numerical[:, place].astype(np.float64)
            assert series["psi"][segment] == pytest.approx(psi(reference[:, place], values), rel=1e-5)
            exact = ks_statistic(reference[:, place], values)
            assert exact - 0.011 <= series["ks"][segment] <= exact + 1e-5
            assert found["missing"][name][segment] == pytest.approx(np.isnan(values).mean(), rel=1e-5, abs=1e-9)
        for place, name in enumerate(schema.categorical):
            missing = (part.categorical[:, place] == 0).mean()
            assert found["missing"][name][segment] == pytest.approx(missing, rel=1e-5, abs=1e-9)
        logits = scores[end - 200 : end]
        chances = 1 / (1 + np.exp(-logits))
        loss = -np.log(np.where(part.label == 1, chances, 1 - chances)).mean()
        assert found["click_rate"][segment] == pytest.approx(part.label.mean(), rel=1e-5)
        assert found["mean_prediction"][segment] == pytest.approx(chances.mean(), rel=1e-5)
        assert found["logloss"][segment] == pytest.approx(loss, rel=1e-5)
    seen = np.isfinite(reference[:, 0]).sum()
    later = np.isfinite(drifting.numerical[2800:, 0]).sum()
    assert found["features"]["price"]["psi_by_chance"][-1] == pytest.approx(9 * (1 / seen + 1 / later), rel=1e-5)
    assert found["features"]["price"]["psi"][-1] > 5 * found["features"]["price"]["psi_by_chance"][-1]
    assert all(speed > 0 for speed in found["rows_per_second"])


@pytest.mark.parametrize("most", [8, 100])
def test_distinct_categories_are_counted_up_to_each_segment(make_model, drifting, schema, most):
    monitor = Monitor(schema, **{**SMALL, "most_segments": most})
    watch(make_model(), drifting, schema, monitor)
    found = monitor.to_dict()
    for place, name in enumerate(schema.categorical):
        column = drifting.categorical[:, place]
        expected = [len(np.unique(column[:end][column[:end] > 0])) for end in found["rows"]]
        assert found["distinct"][name] == expected


def test_segments_are_joined_and_the_reference_stays(make_model, drifting, schema):
    fine, coarse = Monitor(schema, **{**SMALL, "most_segments": 100}), Monitor(schema, **SMALL)
    watch(make_model(), drifting, schema, fine)
    watch(make_model(), drifting, schema, coarse)
    found = coarse.to_dict()
    assert found["rows"] == [400, 800, 1200, 1600, 2000, 2400, 2800, 3000]
    assert found["segment_rows"] == 400
    reference = drifting.numerical[:500, 0].astype(np.float64)
    part = drifting.numerical[800:1200, 0].astype(np.float64)
    assert found["features"]["price"]["psi"][2] == pytest.approx(psi(reference, part), rel=1e-5)
    assert found["click_rate"][2] == pytest.approx(np.mean(fine.to_dict()["click_rate"][4:6]), rel=1e-5)
    assert found["knots"]["rows"] == found["rows"][:-1]
    assert found["knots"]["features"]["price"] == fine.to_dict()["knots"]["features"]["price"][1:-1:2]


def test_a_long_stream_never_has_more_segments_than_allowed(make_rows, make_model, schema):
    monitor = Monitor(schema, reference_rows=50, segment_rows=10, most_segments=4)
    watch(make_model("fe"), make_rows(2000), schema, monitor, size=10)
    found = monitor.to_dict()
    assert 2 <= len(found["rows"]) <= 4
    assert found["rows"][-1] == 2000
    assert found["segment_rows"] == 640


def test_knots_are_those_of_the_embedding_at_the_end_of_each_segment(make_model, drifting, schema):
    model, monitor = make_model(), Monitor(schema, **SMALL)
    watch(model, drifting[:2000], schema, monitor)
    knots = monitor.to_dict()["knots"]
    assert knots["levels"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert len(knots["rows"]) == len(knots["features"]["age"])
    np.testing.assert_allclose(knots["features"]["age"][-1], model.numerical.knots[1, ::10].numpy(), rtol=1e-5)
    assert knots["features"]["price"][-1][9] > knots["features"]["price"][0][9]
    monitor = Monitor(schema, **SMALL)
    watch(make_model("fe"), drifting[:500], schema, monitor)
    assert monitor.to_dict()["knots"] is None


def test_quantiles_of_the_whole_stream(make_model, drifting, schema):
    monitor = Monitor(schema, **SMALL)
    watch(make_model("fe"), drifting, schema, monitor)
    found = monitor.to_dict()["quantiles"]
    assert (found["rows"], len(found["levels"])) == ([3000], 101)
    values = drifting.numerical[:, 0]
    expected = np.quantile(values[np.isfinite(values)], found["levels"], method="inverted_cdf")
    np.testing.assert_allclose(found["features"]["price"][0], expected, rtol=1e-5)


def test_large_batches_are_looked_at_by_a_sample(make_rows, make_model, schema, monkeypatch):
    rows = make_rows(3000)
    monkeypatch.setattr("daes.training.monitor._SAMPLE_ROWS", 100)
    monitor = Monitor(schema, reference_rows=1000, segment_rows=1000)
    watch(make_model("fe"), rows, schema, monitor, size=1000)
    reference = rows.numerical[:1000, 1].astype(np.float64)
    sampled = rows.numerical[1000:2000:10, 1].astype(np.float64)
    found = monitor.to_dict()
    assert found["features"]["age"]["psi"][1] == pytest.approx(psi(reference, sampled), rel=1e-5)
    assert found["missing"]["age"][1] == pytest.approx(np.isnan(rows.numerical[1000:2000, 1]).mean(), rel=1e-5)


@pytest.mark.parametrize("stop", [300, 1500])
def test_a_monitor_goes_on_from_its_state(make_model, drifting, schema, stop):
    whole = Monitor(schema, **SMALL)
    model = make_model()
    parts = [drifting[start : start + 100] for start in range(0, 3000, 100)]
    trainer = StreamTrainer(model, TrainConfig())
    logits = np.zeros(100, np.float32)
    for part in parts:
        whole(trainer, part, logits)
    first, second = Monitor(schema, **SMALL), Monitor(schema, **SMALL)
    for part in parts[: stop // 100]:
        first(trainer, part, logits)
    before = first.to_dict()
    second.load_state_dict(decode_state(encode_state(first.state_dict(), copy=True)))
    assert second.to_dict() == before
    for part in parts[stop // 100 :]:
        second(trainer, part, logits)
    assert second.to_dict() == whole.to_dict()


def test_asking_early_changes_nothing(make_model, drifting, schema):
    asked, quiet = Monitor(schema, **SMALL), Monitor(schema, **SMALL)
    trainer = StreamTrainer(make_model(), TrainConfig())
    for start in range(0, 1000, 100):
        for monitor in (asked, quiet):
            monitor(trainer, drifting[start : start + 100], np.zeros(100, np.float32))
        early = asked.to_dict()
        if start == 200:
            assert (early["reference_rows"], len(early["features"]["price"]["psi"])) == (300, 2)
    assert asked.to_dict() == quiet.to_dict()


def test_what_is_not_known_is_null_and_the_rest_is_strict_json(make_model, schema, make_rows):
    rows = make_rows(600)
    rows.numerical[:, 1] = np.nan
    rows.numerical[400:, 0] = np.inf
    rows = Batch(rows.numerical, rows.categorical)
    monitor = Monitor(schema, **{**SMALL, "reference_rows": 200})
    trainer = StreamTrainer(make_model(), TrainConfig())
    for start in range(0, 600, 100):
        monitor(trainer, rows[start : start + 100], np.full(100, np.nan, np.float32))
    found = json.loads(json.dumps(monitor.to_dict(), allow_nan=False))
    assert found["features"]["age"]["psi"] == [None, None, None]
    assert found["features"]["price"]["psi"][2] is None
    assert found["click_rate"] == [None, None, None]
    assert found["missing"]["age"] == [1.0, 1.0, 1.0]
    assert Monitor(schema).to_dict()["rows"] == []
    json.dumps(Monitor(schema).to_dict(), allow_nan=False)


def test_a_schema_without_numbers(make_rows):
    rows = make_rows(300)
    schema = Schema("click", (), ("city", "device"))
    rows = replace(rows, numerical=np.empty((300, 0), np.float32))
    from daes.model import CTRModel

    model = CTRModel(schema, "fe", "fnn", sizes=10)
    monitor = Monitor(schema, **SMALL)
    watch(model, rows, schema, monitor)
    found = monitor.to_dict()
    assert (found["features"], found["quantiles"], found["knots"]) == ({}, None, None)
    assert set(found["missing"]) == {"city", "device"}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"most_segments": 7}, "most_segments must be even"),
        ({"reference_rows": 0}, "reference_rows must be a positive integer, got 0"),
    ],
)
def test_arguments_are_checked(schema, option, message):
    with pytest.raises(ValueError, match=message):
        Monitor(schema, **option)
