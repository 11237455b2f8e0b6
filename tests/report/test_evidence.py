import numpy as np
import pytest
import torch

from daes.model import CTRModel
from daes.report.evidence import combination_table, evidence_curves, evidence_figure
from daes.stream.batch import Batch
from daes.stream.schema import Schema

SCHEMA = Schema(label="y", numerical=("flat", "steep", "empty"), categorical=("f",))


@pytest.fixture(scope="module")
def model():
    """A model that has counted 4,000 rows: clicks follow `steep`, which is missing in a tenth of them."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(4000, 3)).astype(np.float32)
    chance = 1 / (1 + np.exp(-2 * numbers[:, 1] + 1))
    labels = (rng.random(4000) < chance).astype(np.float32)
    numbers[:400, 1] = np.nan
    numbers[:, 2] = np.nan
    torch.manual_seed(0)
    model = CTRModel(SCHEMA, "fe", "fnn", sizes=4, evidence={"bins": 8, "pair_bins": 2, "strength": 10.0})
    rows = Batch(numbers, np.ones((4000, 1), np.int64), labels)
    model.count(model.prepare(rows))
    return model, rows


def test_curves_are_the_log_odds_of_what_was_counted(model):
    model, rows = model
    steep, flat = evidence_curves(model)
    assert (steep.name, flat.name) == ("steep", "flat")  # the strongest first, what was never seen left out
    assert steep.strength > 3 * flat.strength
    assert np.isnan(flat.missing)
    prior = (rows.label.sum() + 2) / 4010
    for rate, odds, error in (
        (rows.label[:400], steep.missing, None),
        (rows.label[rows.numerical[:, 1] <= steep.upper[0]], steep.odds[0], steep.error[0]),
    ):
        clicks, others = rate.sum() + 10 * prior, (1 - rate).sum() + 10 * (1 - prior)
        assert odds == pytest.approx(np.log(clicks / others) - np.log(prior / (1 - prior)), abs=1e-5)
        assert error is None or error == pytest.approx((1 / clicks + 1 / others) ** 0.5, rel=1e-5)
    assert steep.views.sum() == 3600
    assert (np.diff(steep.level) > 0).all()
    assert (np.diff(steep.upper) > 0).all()
    assert (steep.level[0], steep.level[-1]) == pytest.approx((1 / 16, 15 / 16), abs=0.01)


def test_the_band_holds_what_chance_makes(model):
    _, flat = evidence_curves(model[0])
    inside = np.abs(flat.odds) < 1.96 * flat.error
    assert inside.mean() > 0.7


def test_the_figure_has_a_view_per_feature_and_a_row_in_its_table(model):
    figure = evidence_figure(evidence_curves(model[0]))
    assert [view.label for view in figure.views] == ["steep", "flat"]
    assert [str(row[0]) for row in figure.table.rows] == ["steep", "flat"]
    band, _, odds, missing = figure.views[0].data
    low, high = figure.views[0].layout["yaxis"]["range"]
    assert low < min(band["y"])
    assert high > max(odds["y"])
    assert missing["name"] == "if missing"
    assert evidence_figure([]) is None
    without = CTRModel(SCHEMA, "fe", "fnn", sizes=4, evidence=False)
    assert evidence_curves(without) == []


def test_combinations_are_named_those_that_move_scores_most_first():
    rng = np.random.default_rng(0)
    numbers, ids = rng.normal(size=(600, 3)).astype(np.float32), rng.integers(0, 2, size=(600, 1))
    labels = ((numbers[:, 1] > 0) ^ (ids[:, 0] > 0)).astype(np.float32)
    options = {"bins": 8, "pair_bins": 2, "choose_after": 100, "pairs": 2, "triples": 0}
    model = CTRModel(SCHEMA, "fe", "fnn", sizes=4, evidence=options)
    assert combination_table(model) is None
    model.count(model.prepare(Batch(numbers, ids, labels)), logits=torch.zeros(600))
    (best, effect), (_, less) = combination_table(model).rows
    assert best == "steep × f"
    assert float(effect) > float(less)
    frozen = combination_table(model.freeze())
    assert frozen.rows[0][0] == "steep × f"
    assert combination_table(CTRModel(SCHEMA, "fe", "fnn", sizes=4, evidence=False)) is None
