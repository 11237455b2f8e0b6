"""TD against exhaustive search and against the tree's own leaves."""

import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

from daes.embedding.td import TD
from daes.extras import MissingExtraError


def impurity(labels: list[float]) -> float:
    share = sum(labels) / len(labels)
    return len(labels) * share * (1 - share)


def best_cut(column: list[float], labels: list[float]) -> float:
    """The midpoint between neighbouring values that leaves the least Gini impurity."""
    ordered = sorted(set(column))
    cuts = [(low + high) / 2 for low, high in pairwise(ordered)]
    pairs = list(zip(column, labels, strict=True))

    def left_over(cut: float) -> float:
        return impurity([y for x, y in pairs if x <= cut]) + impurity([y for x, y in pairs if x > cut])

    return min(cuts, key=left_over)


def test_two_leaves_are_cut_at_the_best_place() -> None:
    torch.manual_seed(0)
    values = torch.randn(80, 2)
    labels = ((values[:, 0] > 0.4) ^ (torch.rand(80) < 0.2)).float()
    method = TD(2, num_bins=2).fit(values, labels)
    for feature in range(2):
        expected = best_cut(values[:, feature].double().tolist(), labels.tolist())
        assert method.edges[feature, 0].item() == pytest.approx(expected, abs=1e-6)


def test_rows_are_the_leaves_of_the_tree() -> None:
    tree = pytest.importorskip("sklearn.tree")
    torch.manual_seed(1)
    values = torch.randn(500, 3)
    values[:100, 1] = torch.nan
    values[100:120, 1] = torch.inf
    labels = (torch.rand(500) < torch.sigmoid(torch.sin(3 * values[:, 1].nan_to_num(0.0, 0.0)))).float()
    method = TD(3, 4, num_bins=6).fit(values, labels)
    index = method.index(values.nan_to_num(0.0))
    for feature in range(3):
        seen = torch.isfinite(values[:, feature])
        column = values[seen, feature : feature + 1].numpy()
        leaves = tree.DecisionTreeClassifier(max_leaf_nodes=6, random_state=0).fit(column, labels[seen]).apply(column)
        rows = index[seen, feature].numpy()
        assert len(np.unique(rows)) == 6
        assert len({*zip(leaves, rows, strict=True)}) == 6
    assert torch.equal(method(values)[120:, 2], method.table[2, index[120:, 2]])


def test_columns_that_tell_nothing_have_one_row() -> None:
    values = torch.tensor([[1.0, torch.nan], [1.0, torch.nan], [1.0, torch.nan]])
    method = TD(2, num_bins=4).fit(values, torch.tensor([0.0, 1.0, 1.0]))
    assert method.index(torch.tensor([[-9.0, -9.0], [9.0, 9.0]])).tolist() == [[0, 0], [0, 0]]
    assert TD(1, num_bins=1).fit(torch.rand(9, 1), torch.ones(9)).edges.shape == (1, 0)


def test_huge_values_are_no_obstacle() -> None:
    values = torch.tensor([[-1e300], [-1.0], [1.0], [1e300]], dtype=torch.float64)
    method = TD(1, num_bins=2).double().fit(values, torch.tensor([0.0, 0.0, 1.0, 1.0]))
    assert method.index(values).flatten().tolist() == [0, 0, 1, 1]


def test_labels_are_needed() -> None:
    with pytest.raises(ValueError, match=r"labels must .*got None"):
        TD(1).fit(torch.rand(9, 1))
    with pytest.raises(ValueError, match="labels must be finite"):
        TD(1).fit(torch.rand(2, 1), torch.tensor([0.0, torch.nan]))
    with pytest.raises(ValueError, match=r"learner must .*got 'forest'"):
        TD(1, learner="forest")


def test_lightgbm_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'daes\[lightgbm\]'"):
        TD(1, learner="lightgbm").fit(torch.rand(9, 1), torch.ones(9))


def test_lightgbm_finds_the_step() -> None:
    pytest.importorskip("lightgbm")
    torch.manual_seed(0)
    values = torch.rand(2000, 2)
    values[:, 1] = 1.0
    labels = (values[:, 0] > 0.3).float()
    method = TD(2, num_bins=2, learner="lightgbm").fit(values, labels)
    assert method.edges[0, 0].item() == pytest.approx(0.3, abs=0.01)
    assert method.edges[1, 0].item() == float("inf")
