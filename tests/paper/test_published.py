from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.experiments.significance import average_rank
from daes.paper.divergence import expected_draws
from daes.paper.published import (
    _OVERALL,
    DATASETS,
    ESTIMATION_CALLS,
    OVERALL,
    PAPER_BACKBONES,
    PAPER_METHODS,
    RESERVOIR_SIZE,
)


def test_names_are_those_of_the_registries():
    assert tuple(BACKBONES)[:6] == PAPER_BACKBONES
    assert set(PAPER_METHODS) <= METHODS.keys()


def test_the_main_table_has_every_cell():
    assert OVERALL.keys() == DATASETS.keys()
    for table in OVERALL.values():
        assert tuple(table) == PAPER_METHODS
        for row in table.values():
            assert tuple(row) == PAPER_BACKBONES
            assert all(0.7 < score["auc"] < 0.9 and 0.05 < score["logloss"] < 0.5 for score in row.values())


def test_the_published_ranks_follow_from_the_published_scores():
    for name, table in OVERALL.items():
        auc = [[score["auc"] for score in row.values()] for row in table.values()]
        ranks = average_rank(auc, higher_is_better=True, ties="order")
        assert [f"{rank:.2f}" for rank in ranks] == [row.split()[-1] for row in _OVERALL[name].values()]


def test_the_published_calls_are_those_of_the_published_rule():
    for feature in (0, 1):
        length = RESERVOIR_SIZE + ESTIMATION_CALLS["RS"][feature]
        draws = expected_draws(RESERVOIR_SIZE, int(length))
        assert f"{draws['jump-paper']:.2e}" == f"{ESTIMATION_CALLS['JRS'][feature]:.2e}"
        assert f"{draws['jump']:.2e}" != f"{ESTIMATION_CALLS['JRS'][feature]:.2e}"
