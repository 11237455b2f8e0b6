"""scikit-learn's conventions, and that the classifier trains as the rest of the package does."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from daes.backbone.deepfm import DeepFM
from daes.classifier import WEIGHT_CHECKS, StreamingClassifier
from daes.embedding import DAES, METHODS
from daes.model import CTRModel
from daes.storage.state_file import write_state
from daes.training import TrainingError


@parametrize_with_checks([StreamingClassifier()], expected_failed_checks=lambda _: WEIGHT_CHECKS)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_what_is_expected_to_fail_is_what_fails_for_scikit_learns_own():
    generator = pytest.importorskip("sklearn.utils._test_common.instance_generator")
    assert WEIGHT_CHECKS.items() <= generator.PER_ESTIMATOR_XFAIL_CHECKS[SGDClassifier].items()


def test_a_row_of_weight_0_is_not_there():
    rng = np.random.default_rng(0)
    rows, y, weight = rng.normal(size=(400, 2)), np.arange(400) % 2, rng.integers(0, 3, 400)
    rows[weight == 0] *= 1000
    options = {"batch_size": 20}
    whole = StreamingClassifier(**options).fit(rows, y, sample_weight=weight)
    there = weight > 0
    part = StreamingClassifier(**options).fit(rows[there], y[there], sample_weight=weight[there])
    np.testing.assert_array_equal(whole.decision_function(rows[:9]), part.decision_function(rows[:9]))


@pytest.fixture(scope="module")
def clicks():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "price": rng.lognormal(sigma=2, size=3000),
            "age": rng.integers(18, 70, 3000).astype(float),
            "city": rng.choice(["A", "B", "C"], 3000),
        }
    )
    logit = 1.5 * (frame.price.rank(pct=True) - 0.5) * 4 + (frame.city == "B") * 1.5 - 1
    frame.loc[rng.random(3000) < 0.1, "price"] = None
    frame.loc[rng.random(3000) < 0.1, "city"] = None
    return frame, (rng.random(3000) < 1 / (1 + np.exp(-logit))).astype(int)


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_learns_from_any_frame(clicks, form):
    frame, y = clicks
    rows = {"pandas": lambda f: f, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}[form](frame)
    model = StreamingClassifier(batch_size=100, epochs=4, learning_rate=0.005).fit(rows, y)
    assert model.schema_.numerical == ("price", "age")
    assert model.schema_.categorical == ("city",)
    assert roc_auc_score(y, model.predict_proba(rows)[:, 1]) > 0.75


def test_all_forms_give_the_same_scores(clicks):
    frame, y = clicks
    scores = [
        StreamingClassifier(batch_size=500).fit(rows, y).predict_proba(rows)
        for rows in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame))
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_classes_do_not_change(clicks):
    frame, y = clicks
    model = StreamingClassifier(batch_size=500).partial_fit(frame[:500], y[:500], classes=[0, 1])
    model.partial_fit(frame[500:], y[500:], classes=[1, 0])
    with pytest.raises(ValueError, match=r"classes must be those of the first call, \[0, 1\], got \[0, 2\]"):
        model.partial_fit(frame[500:], y[500:], classes=[0, 2])


def test_partial_fit_goes_on_where_it_stopped(clicks):
    frame, y = clicks
    whole = StreamingClassifier(batch_size=500).partial_fit(frame[:1000], y[:1000])
    whole.partial_fit(frame[1000:], y[1000:])
    again = StreamingClassifier(batch_size=500).partial_fit(frame[:1000], y[:1000])
    torch_noise = np.random.default_rng(1).random()  # numbers drawn elsewhere in between change nothing
    assert torch_noise >= 0
    again.partial_fit(frame[1000:], y[1000:])
    np.testing.assert_array_equal(whole.decision_function(frame), again.decision_function(frame))
    before = whole.decision_function(frame)
    whole.partial_fit(frame[:500], y[:500])
    assert not np.array_equal(before, whole.decision_function(frame))


def test_global_random_state_is_left_alone(clicks):
    import torch

    frame, y = clicks
    torch.manual_seed(5)
    before = torch.get_rng_state()
    StreamingClassifier(batch_size=500).fit(frame, y)
    assert torch.equal(before, torch.get_rng_state())


def test_columns_can_be_named_and_a_feature_may_be_called_label(clicks):
    frame, y = clicks
    frame = frame.assign(label=np.arange(len(frame)) % 2, age=frame.age.astype(int))
    model = StreamingClassifier(categorical=["city", "age"]).fit(frame, y)
    assert model.schema_.categorical == ("city", "age")
    assert "label" in model.schema_.numerical


def test_columns_with_names_of_labels_are_like_any_others(clicks):
    frame, y = clicks
    plane = frame.assign(x=np.arange(len(frame)), y=1.5, target=2.5)
    assert {"x", "y", "target"} < set(StreamingClassifier(batch_size=500).fit(plane, y).schema_.numerical)
    listed = StreamingClassifier(batch_size=500, numerical=["price"], categorical=["city"]).fit(
        frame.assign(click=y), y
    )
    assert (listed.schema_.numerical, listed.schema_.categorical) == (("price",), ("city",))


def test_a_column_without_a_value_at_first_is_not_left_out_in_silence(clicks):
    frame, y = clicks
    empty = frame.assign(city=None)
    with pytest.warns(UserWarning, match="'city' without a value in the first rows: left out of the model"):
        assert StreamingClassifier(batch_size=500).partial_fit(empty, y).schema_.categorical == ()
    named = StreamingClassifier(batch_size=500, categorical=["city"]).partial_fit(empty, y).partial_fit(frame, y)
    assert named.schema_.categorical == ("city",)


@pytest.mark.parametrize("method", ["efd", "td", "daes-tran", "youtube"])
def test_offline_and_other_methods_work(clicks, method):
    frame, y = clicks
    scores = StreamingClassifier(method, "fnn", batch_size=500).fit(frame, y).predict_proba(frame)
    assert scores.shape == (3000, 2)
    assert np.isfinite(scores).all()


def test_clone_and_cross_validation(clicks):
    frame, y = clicks
    model = StreamingClassifier(batch_size=100, learning_rate=0.01, method_options={"reservoir_size": 500})
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, frame, y, cv=2, scoring="roc_auc").shape == (2,)


def test_errors_are_sentences(clicks):
    frame, y = clicks
    with pytest.raises(ValueError, match="two classes, got 3 classes"):
        StreamingClassifier().fit(frame[:3], [0, 1, 2])
    with pytest.raises(ValueError, match="only one class"):
        StreamingClassifier().fit(frame[:3], [1, 1, 1])
    with pytest.raises(ValueError, match=r"one of the classes \[0, 1\], got 5"):
        StreamingClassifier().fit(frame, y).partial_fit(frame[:2], [0, 5])
    with pytest.raises(ValueError, match=r"feature names|no column"):
        StreamingClassifier().fit(frame, y).predict(frame.drop(columns="city"))
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        StreamingClassifier(batch_size=0).fit(frame, y)
    with pytest.raises(ValueError, match="epochs must be a positive integer, got 0"):
        StreamingClassifier(epochs=0).fit(frame, y)
    with pytest.raises(ValueError, match=r"patience must be a positive integer, got 1\.5"):
        StreamingClassifier(patience=1.5).fit(frame, y)
    with pytest.raises(ValueError, match=r"batch_size must be an integer, got 64\.5"):
        StreamingClassifier(batch_size=64.5).fit(frame, y)
    with pytest.raises(ValueError, match="device must be auto, cpu, cuda or cuda:N, got tpu"):
        StreamingClassifier(device="tpu").fit(frame, y)
    with pytest.raises(ValueError, match=r"sample_weight must be finite and not negative, got -1\.0"):
        StreamingClassifier().fit(frame, y, sample_weight=-1.0)
    with pytest.raises(ValueError, match=r"sample_weight must have 3000 numbers, one per row, got shape \(3,\)"):
        StreamingClassifier().fit(frame, y, sample_weight=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="y must have a label for each row, all of one type, got NoneType, str"):
        StreamingClassifier().fit(frame[:3], ["yes", "no", None])
    with pytest.raises(ValueError, match="X must have at least one row"):
        StreamingClassifier().fit(frame[:0], y[:0])
    with pytest.raises(ValueError, match="2-dimensional container"):
        StreamingClassifier().fit(frame.price, y)
    mixed = frame.assign(city=["7", 7] * (len(frame) // 2))
    with pytest.raises(
        ValueError, match=r"each column of a DataFrame must have values of one type, got: .*column city"
    ):
        StreamingClassifier().fit(mixed, y)
    fitted = StreamingClassifier().fit(frame, y)
    with pytest.raises(ValueError, match=r"X must be a table with the columns .*'city'.* as before, got ndarray"):
        fitted.predict_proba(np.ones((2, frame.shape[1])))


def explode(model, on):
    """Let the model's loss be NaN on the batches with these numbers, counted from 0."""
    plain, calls = model.cross_entropy, []

    def loss(*arguments):
        calls.append(1)
        return plain(*arguments) * (float("nan") if len(calls) - 1 in on else 1.0)

    model.cross_entropy = loss


def test_a_bad_batch_stops_or_is_skipped(clicks):
    frame, y = clicks
    stopping = StreamingClassifier("fe", "fnn", batch_size=500).partial_fit(frame, y)
    explode(stopping.model_, {2})
    with pytest.raises(TrainingError, match="the batch at row 1000 cannot be learned from: the loss is nan"):
        stopping.partial_fit(frame, y)
    skipping = StreamingClassifier("fe", "fnn", batch_size=500, bad_batch="skip").partial_fit(frame, y)
    explode(skipping.model_, {2})
    skipping.partial_fit(frame, y)
    assert [(bad.row, bad.reason) for bad in skipping.step_.bad_batches] == [(1000, "the loss is nan")]
    assert np.isfinite(skipping.decision_function(frame)).all()


def test_bfloat16_is_used_for_learning_and_scoring(clicks):
    frame, y = clicks
    options = {"batch_size": 500, "optimizer": "adam", "evidence": False}
    exact = StreamingClassifier("fe", "fnn", **options).fit(frame, y).decision_function(frame)
    half = StreamingClassifier("fe", "fnn", amp=True, **options).fit(frame, y).decision_function(frame)
    assert not np.array_equal(exact, half)
    np.testing.assert_allclose(half, exact, atol=0.1)


def test_modules_are_copied(clicks):
    frame, y = clicks
    method, backbone = DAES(2, 8, num_meta=5), DeepFM(3, 8, hidden=(16,))
    before = method.missing.detach().clone()
    model = clone(StreamingClassifier(method, backbone, batch_size=100, epochs=2, learning_rate=0.005))
    assert model.method is not method
    first = model.fit(frame, y).predict_proba(frame)
    assert model.model_.numerical.num_meta == 5
    assert model.model_.dim == 8
    assert torch.equal(method.missing, before)
    assert torch.equal(model.method.missing, before)
    np.testing.assert_array_equal(model.fit(frame, y).predict_proba(frame), first)
    assert roc_auc_score(y, first[:, 1]) > 0.7


def test_rows_are_learned_in_the_order_of_time(clicks):
    frame, y = clicks
    at = pd.date_range("2026-01-01", periods=len(frame), freq="min")
    sorted_rows = frame.assign(at=at)
    order = np.random.default_rng(0).permutation(len(frame))
    first = StreamingClassifier(time="at").fit(sorted_rows, y)
    second = StreamingClassifier(time="at").fit(sorted_rows.iloc[order], y[order])
    assert "at" not in (*first.schema_.numerical, *first.schema_.categorical)
    np.testing.assert_array_equal(first.decision_function(sorted_rows), second.decision_function(sorted_rows))
    untimed = StreamingClassifier().fit(frame.iloc[order], y[order])
    assert not np.array_equal(first.decision_function(sorted_rows), untimed.decision_function(frame))
    weight = np.linspace(0, 1, len(frame))
    first = StreamingClassifier(time="at").fit(sorted_rows, y, weight)
    second = StreamingClassifier(time="at").fit(sorted_rows.iloc[order], y[order], weight[order])
    np.testing.assert_array_equal(first.decision_function(sorted_rows), second.decision_function(sorted_rows))


def test_columns_can_be_excluded(clicks):
    frame, y = clicks
    model = StreamingClassifier(exclude=["age"]).fit(frame, y)
    assert model.schema_.numerical == ("price",)
    changed = frame.assign(age=0.0)
    np.testing.assert_array_equal(model.decision_function(frame), model.decision_function(changed))
    with pytest.raises(ValueError, match="there is no column 'agee'"):
        StreamingClassifier(exclude=["agee"]).fit(frame, y)
    with pytest.raises(ValueError, match="time needs a table with named columns; X is a ndarray"):
        StreamingClassifier(time="at").fit(frame[["price", "age"]].to_numpy(), y)


def test_random_states_of_scikit_learn_are_taken(clicks):
    frame, y = clicks

    def scores(random_state):
        return StreamingClassifier("fe", "fnn", random_state=random_state).fit(frame, y).decision_function(frame)

    assert not np.array_equal(scores(None), scores(None))
    np.testing.assert_array_equal(scores(np.random.RandomState(3)), scores(np.random.RandomState(3)))
    np.testing.assert_array_equal(scores(3), scores(3))


def test_the_batch_size_follows_the_number_of_rows(clicks):
    frame, y = clicks
    model = StreamingClassifier().fit(frame, y)
    assert model.step_.config.batch_size == 8
    assert roc_auc_score(y, model.predict_proba(frame)[:, 1]) > 0.75


def test_early_stopping_goes_back_to_the_best_epoch(clicks):
    frame, y = clicks
    options = {"batch_size": 20, "learning_rate": 0.05, "optimizer": "adam", "validation_fraction": 0.2}
    model = StreamingClassifier(epochs=40, patience=3, **options).fit(frame, y)
    losses = model.validation_loss_
    best = int(np.argmin(losses))
    assert len(losses) == best + 4 < 40
    # The last fifth decides, and the model is that of the best epoch.
    click = model.predict_proba(frame[2400:])[:, 1]
    loss = -np.mean(np.where(y[2400:] == 1, np.log(click), np.log(1 - click)))
    assert loss == pytest.approx(losses[best], rel=1e-4)
    assert losses[-1] > losses[best]
    for name, value in (("patience", 0), ("validation_fraction", 1.0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            StreamingClassifier(**{name: value}).fit(frame, y)


def test_a_failed_fit_leaves_no_fitted_estimator(clicks):
    frame, y = clicks
    model = StreamingClassifier("fe", "fnn").fit(frame, y)
    for X, labels in ((frame, y[:-1]), (frame, np.full(len(y), 2)), (frame.assign(city=[[1]] * len(frame)), y)):
        with pytest.raises((ValueError, TypeError)):
            model.fit(X, labels)
        assert not [name for name in vars(model) if name.endswith("_")]
        with pytest.raises(NotFittedError):
            model.predict(frame)
        model.fit(frame, y)


def test_a_training_that_stops_leaves_no_fitted_estimator(clicks, monkeypatch):
    frame, y = clicks
    monkeypatch.setattr(CTRModel, "cross_entropy", staticmethod(lambda logits, *_: logits.sum() * float("nan")))
    model = StreamingClassifier("fe", "fnn")
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(TrainingError):
            learn(frame, y)
        with pytest.raises(NotFittedError):
            model.predict(frame)


def test_a_failed_partial_fit_keeps_what_was_learned(clicks):
    frame, y = clicks
    model = StreamingClassifier("fe", "fnn").partial_fit(frame, y)
    before = model.decision_function(frame)
    with pytest.raises(ValueError, match="one of the classes"):
        model.partial_fit(frame[:2], [0, 7])
    np.testing.assert_array_equal(model.decision_function(frame), before)


@pytest.mark.parametrize("labels", [(0, 1), ("no", "yes"), (False, True)])
def test_a_saved_classifier_goes_on_to_the_same_bits(clicks, labels, tmp_path):
    frame, y = clicks
    y = np.array(labels)[y]
    model = StreamingClassifier("daes-gate", evidence=True, batch_size=100, backbone_options={"dropout": 0.2})
    model.fit(frame[:2000], y[:2000]).save(tmp_path / "model.safetensors")
    again = StreamingClassifier.load(tmp_path / "model.safetensors")
    assert again.get_params() == model.get_params() | {"evidence": model.model_.config["evidence"]}
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
    model.partial_fit(frame[2000:], y[2000:])
    again.partial_fit(frame[2000:], y[2000:])
    np.testing.assert_array_equal(again.decision_function(frame), model.decision_function(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.drop(columns="city"))


def test_calls_with_and_without_weights_may_follow_each_other(clicks, tmp_path):
    frame, y = clicks
    model = StreamingClassifier(batch_size=50)
    model.partial_fit(frame[:500], y[:500])
    model.partial_fit(frame[500:1000], y[500:1000], sample_weight=np.full(500, 0.5))
    model.partial_fit(frame[1000:1500], y[1000:1500])
    assert model._recent_.sample().weight[[0, -1]].tolist() == [1, 1]
    assert np.isfinite(model.feature_importances_).all()
    model.save(tmp_path / "model")
    loaded = StreamingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)


def test_a_classifier_is_saved_with_the_optimiser_that_it_was_fitted_with(clicks, tmp_path):
    frame, y = clicks
    columns = frame.columns[:2]
    model = StreamingClassifier(batch_size=50, numerical=columns, exclude=columns[:0]).fit(frame, y)
    model.set_params(optimizer="adam")
    model.save(tmp_path / "model")
    loaded = StreamingClassifier.load(tmp_path / "model")
    assert (loaded.optimizer, loaded.numerical, loaded.exclude) == ("adagrad", ["price", "age"], [])
    for one in (model, loaded):
        one.partial_fit(frame[:100], y[:100])
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))


def test_settings_may_be_numpys_as_a_search_chooses_them(clicks, tmp_path):
    frame, y = clicks
    given = {"backbone": np.str_("fnn"), "dim": np.int64(4), "optimizer": np.str_("adam"), "amp": np.bool_(False)}
    options = {"learning_rate": np.float32(0.01), "context": np.array(["city"]), "batch_size": np.int64(500)}
    model = StreamingClassifier("daes-gate", **given, **options).fit(frame, y)
    model.save(tmp_path / "model")
    loaded = StreamingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))


def test_an_array_that_must_not_be_written_is_copied(clicks):
    frame, y = clicks
    rows = np.ascontiguousarray(frame[["price", "age"]], np.float32)
    rows.flags.writeable = False  # as joblib shares it; torch warns of such an array, once per process
    model = StreamingClassifier().fit(rows, y)
    assert model._batch(rows).numerical.flags.writeable


def test_a_classifier_of_modules_is_saved_by_their_names(clicks, tmp_path):
    frame, y = clicks
    model = StreamingClassifier(DAES(2, 8, num_meta=5), DeepFM(3, 8, hidden=(16,)), batch_size=500).fit(frame, y)
    model.save(tmp_path / "model.safetensors")
    again = StreamingClassifier.load(tmp_path / "model.safetensors")
    assert METHODS[again.method].cls is DAES
    assert (again.method_options["num_meta"], again.backbone) == (5, "deepfm")
    np.testing.assert_array_equal(again.decision_function(frame), model.decision_function(frame))


def test_a_backbone_without_plain_inputs_is_saved(clicks, tmp_path):
    frame, y = clicks
    model = StreamingClassifier(backbone=DeepFM(3, 8, hidden=(16,)), batch_size=500).fit(frame, y)
    model.save(tmp_path / "model")
    loaded = StreamingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))
    assert loaded.fit(frame, y).model_.backbone.plain_dim == 0


def test_only_a_fitted_classifier_is_saved_and_only_one_is_loaded(tmp_path):
    with pytest.raises(NotFittedError):
        StreamingClassifier().save(tmp_path / "model.safetensors")
    (tmp_path / "page.html").write_text("<html>")
    with pytest.raises(ValueError, match=r"page\.html is not a saved classifier: it is truncated or not a state file"):
        StreamingClassifier.load(tmp_path / "page.html")
    write_state(tmp_path / "other.safetensors", {"format": "other"})
    with pytest.raises(ValueError, match="must hold a classifier of version 1"):
        StreamingClassifier.load(tmp_path / "other.safetensors")


def test_importances_are_in_the_order_of_the_columns(clicks):
    frame, y = clicks
    rows = frame.assign(noise=np.random.default_rng(1).normal(size=len(frame)))[["noise", "city", "age", "price"]]
    model = StreamingClassifier(exclude=["age"], batch_size=20, epochs=2).fit(rows, y)
    noise, city, age, price = model.feature_importances_
    assert price > city > 0.01 > abs(noise)
    assert age == 0
    array = StreamingClassifier(batch_size=20).fit(frame[["age", "price"]].to_numpy(), y)
    assert array.feature_importances_.argmax() == 1


def test_predictions_beside_partial_fit_change_nothing():
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 4))
    y = (X[:, 0] + random.normal(size=3000) > 0).astype(int)

    def learn(model):
        for start in range(0, 3000, 500):
            model.partial_fit(X[start : start + 500], y[start : start + 500], classes=[0, 1])
        return model.decision_function(X[:100])

    model = StreamingClassifier(batch_size=100, backbone_options={"dropout": 0.5, "batch_norm": True})
    model.partial_fit(X[:100], y[:100], classes=[0, 1])
    other, ended = deepcopy(model), threading.Event()

    def predict():
        while not ended.is_set():
            model.predict_proba(X[:50])

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        scores = learn(model)
    finally:
        ended.set()
        thread.join()
    assert np.array_equal(scores, learn(other))


def test_classifiers_trained_in_threads_are_those_trained_one_by_one():
    X, y = np.random.default_rng(0).normal(size=(500, 2)), np.arange(500) % 2

    def scores(seed):
        model = StreamingClassifier(batch_size=10, random_state=seed, backbone_options={"dropout": 0.5})
        return model.fit(X, y).decision_function(X)

    expected = [scores(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        np.testing.assert_array_equal(list(pool.map(scores, range(4))), expected)


def test_a_copy_learns_for_itself():
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2
    model = StreamingClassifier(batch_size=100).fit(X, y)
    before = model.predict_proba(X)
    for copied in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(copied.predict_proba(X), before)
        copied.partial_fit(X, y)
        assert copied.model_.lock is not model.model_.lock
        assert np.array_equal(model.predict_proba(X), before)
