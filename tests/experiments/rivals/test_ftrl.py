import numpy as np
import pytest

from daes.experiments.rivals import FTRL
from daes.stream.batch import Batch
from daes.stream.schema import Schema

SCHEMA = Schema(label="y", numerical=("a", "b"), categorical=("f", "g"))


def rows(count, seed=0, **more):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(3.0, 2.0, (count, 2)).astype(np.float32)
    numbers[rng.random((count, 2)) < 0.2] = np.nan
    categories = rng.integers(1, 6, (count, 2))
    labels = (rng.random(count) < 1 / (1 + np.exp(-(categories[:, 0] - 3.0)))).astype(np.float32)
    return Batch(numbers, categories, labels, **more)


def by_the_formula(batches, alpha, beta, l1, l2):
    """McMahan et al. (2013), Algorithm 1, in dictionaries, one coordinate at a time; scores of each batch before it."""
    z, n, scores, past = {}, {}, [], [[], []]

    def weight(k):
        if abs(z.get(k, 0.0)) <= l1:
            return 0.0
        return -(z[k] - np.sign(z[k]) * l1) / ((beta + np.sqrt(n[k])) / alpha + l2)

    for batch in batches:
        features = []
        for row in range(len(batch)):
            x = {"bias": 1.0}
            for column in (0, 1):
                value = float(batch.numerical[row, column])
                seen = np.array(past[column])
                x[
                    "bin", column, "missing" if np.isnan(value) else np.sign(value) * (4 * np.log2(1 + abs(value)) // 1)
                ] = 1.0
                if not np.isnan(value) and seen.size and seen.std() > 0:
                    x["value", column] = float(np.clip((value - seen.mean()) / seen.std(), -4, 4))
                x["category", column, int(batch.categorical[row, column])] = 1.0
            features.append(x)
        scores += [sum(weight(k) * v for k, v in x.items()) for x in features]
        for x, label in zip(features, batch.label, strict=True):
            p = 1 / (1 + np.exp(-sum(weight(k) * v for k, v in x.items())))
            for k, v in x.items():
                g, w = (p - label) * v, weight(k)
                sigma = (np.sqrt(n.get(k, 0.0) + g * g) - np.sqrt(n.get(k, 0.0))) / alpha
                # All coordinates of a row are updated with the weights from before it.
                x[k] = (g, sigma, w)
            for k, (g, sigma, w) in x.items():
                z[k] = z.get(k, 0.0) + g - sigma * w
                n[k] = n.get(k, 0.0) + g * g
        for column in (0, 1):
            values = batch.numerical[:, column].astype(np.float64)
            past[column] += values[~np.isnan(values)].tolist()
    return np.array(scores)


@pytest.mark.parametrize("options", [{}, {"alpha": 0.3, "beta": 0.5, "l1": 0.2, "l2": 0.1}])
def test_it_is_the_published_algorithm(options):
    batches = [rows(25, seed) for seed in range(6)]
    model = FTRL(SCHEMA, None, **options)
    found = []
    for batch in batches:
        found.append(model.score(batch))
        model.learn(batch)
    settings = {"alpha": 0.1, "beta": 1.0, "l1": 0.0, "l2": 0.0} | options
    assert np.concatenate(found) == pytest.approx(by_the_formula(batches, **settings), rel=1e-4, abs=1e-6)


def test_it_learns_and_a_weight_counts_as_rows_do():
    model = FTRL(SCHEMA, None)
    for seed in range(30):
        model.learn(rows(50, seed))
    test = rows(2000, 99)
    scores = model.score(test)
    assert scores[test.categorical[:, 0] == 5].mean() > scores[test.categorical[:, 0] == 1].mean() + 1
    ignored = FTRL(SCHEMA, None)
    ignored.learn(rows(50, weight=np.zeros(50, np.float32)))
    assert not ignored.z.any()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="alpha must be positive, got 0"):
        FTRL(SCHEMA, None, alpha=0)
    with pytest.raises(ValueError, match="l2 must not be negative"):
        FTRL(SCHEMA, None, l2=-1.0)


@pytest.mark.engines
def test_it_scores_as_river_does_but_for_the_last_row():
    """River solves for the weights of a row before it adds the row's gradient: its scores are a row per slot behind."""
    pytest.importorskip("river", reason="river is not installed")
    from river import linear_model, optim

    model = FTRL(SCHEMA, None)
    theirs = linear_model.LogisticRegression(optim.FTRLProximal(0.1, 1.0, l1=0.0, l2=0.0), intercept_lr=0.0)
    stream, found, expected = rows(3000), [], []
    for row in range(len(stream)):
        batch = Batch(stream.numerical[[row]], stream.categorical[[row]], stream.label[[row]])
        index, values = model._features(batch)
        x = dict(zip(index[0].tolist(), values[0].tolist(), strict=True))
        found.append(float(model.score(batch)[0]))
        expected.append(theirs._raw_dot_one(x))
        model.learn(batch)
        theirs.learn_one(x, bool(batch.label[0]))
    assert np.corrcoef(found[500:], expected[500:])[0, 1] > 0.9995
    assert np.mean(np.abs(np.subtract(found, expected)[500:])) < 0.03
