import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.engines
pytest.importorskip("river", reason="river is not installed")


def stream(rows, seed=0):
    rng = np.random.default_rng(seed)
    for price in rng.lognormal(size=rows):
        yield {"price": float(price), "city": str(rng.integers(3))}, bool(price > 1)


def made(**options):
    from daes.adapters.river import RiverClassifier
    from daes.classifier import StreamingClassifier

    return RiverClassifier(StreamingClassifier(learning_rate=0.01, backbone="fnn", **options), batch_size=32)


def test_river_evaluates_it():
    from river import evaluate, metrics

    score = evaluate.progressive_val_score(stream(800), made(), metrics.ROCAUC())
    assert score.get() > 0.9


def test_learning_one_by_one_is_learning_in_batches():
    one, many = made(), made()
    rows, labels = zip(*stream(96), strict=True)
    for row, label in zip(rows, labels, strict=True):
        one.learn_one(row, label)
    frame, clicks = pd.DataFrame(rows), pd.Series(labels)
    for start in (0, 32, 64):
        many.learn_many(frame[start : start + 32], clicks[start : start + 32])
    wanted = [one.predict_proba_one(row)[True] for row in rows[:5]]
    found = many.predict_proba_many(frame[:5])
    assert found.columns.tolist() == [False, True]
    np.testing.assert_allclose(found[True], wanted)
    assert many.predict_many(frame[:5]).tolist() == [one.predict_one(row) for row in rows[:5]]


def test_waiting_rows_are_learned_before_a_batch():
    model = made()
    rows, labels = zip(*stream(40), strict=True)
    for row, label in zip(rows[:8], labels[:8], strict=True):
        model.learn_one(row, label)
    model.learn_many(pd.DataFrame(rows[8:]), pd.Series(labels[8:]))
    assert model._model.model_.evidence.total[0] == 40


def test_a_category_may_be_nan_as_in_pandas():
    model = made()
    rows, labels = zip(*stream(64), strict=True)
    frame = pd.DataFrame(rows).astype({"city": object})
    frame.loc[::4, "city"] = np.nan
    for start in (0, 32):
        model.learn_many(frame[start : start + 32], pd.Series(labels[start : start + 32]))
    missing = [model.predict_proba_one({"price": 1.0, "city": city}) for city in (None, np.nan)]
    assert missing[0] == missing[1] == model.predict_proba_one({"price": 1.0})
    assert model.predict_proba_many(frame[:5]).notna().all(axis=None)


def test_there_is_no_score_before_the_first_batch():
    model = made()
    assert model.predict_proba_one({"price": 1.0}) == {}
    assert model.predict_one({"price": 1.0}) is None
    assert model.predict_proba_many(pd.DataFrame({"price": [1.0]})).empty


def test_rows_with_fewer_and_further_columns():
    model = made()
    for row, label in stream(32):
        model.learn_one(row, label)
    first = model.predict_proba_one({"price": 2.0, "city": None})
    assert model.predict_proba_one({"price": 2.0, "colour": "red"}) == first


def test_a_clone_has_learned_nothing():
    model = made(dim=4)
    for row, label in stream(32):
        model.learn_one(row, label)
    clone = model.clone()
    assert clone.predict_proba_one({"price": 1.0}) == {}
    assert (clone.batch_size, clone.classifier.dim) == (32, 4)


def test_features_may_be_numbered():
    model = made()
    rows, labels = zip(*stream(64), strict=True)
    for row, label in zip(rows, labels, strict=True):
        model.learn_one({0: row["price"], 1: row["city"]}, label)
    assert (model._model.schema_.numerical, model._model.schema_.categorical) == (("0",), ("1",))
    scores = [model.predict_proba_one({0: price, 1: "1"})[True] for price in (0.1, 9.0)]
    assert scores[0] < scores[1]


@pytest.mark.parametrize("label", [-1, 2, "no", float("nan"), None])
def test_other_labels_are_refused(label):
    model = made()
    with pytest.raises(ValueError, match=f"y must be True or False, or 1 or 0, got {label!r}"):
        model.learn_one({"price": 1.0}, label)
    with pytest.raises(ValueError, match="y must be True or False, or 1 or 0, got"):
        model.learn_many(pd.DataFrame({"price": [1.0, 2.0]}), pd.Series([1, label]))


def test_a_value_of_another_type_is_an_error_that_names_the_column():
    model = made()
    for row, label in stream(32):
        model.learn_one(row, label)
    with pytest.raises(TypeError, match=r"column 'price' must have values of one type, got: .*'free'"):
        model.predict_proba_one({"price": "free", "city": "1"})
