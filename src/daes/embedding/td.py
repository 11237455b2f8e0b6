"""TD: bins cut at the thresholds of a decision tree on each feature alone."""

from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from daes.choices import check_choice
from daes.distribution.base import Floats
from daes.embedding.base import SharedOptions
from daes.embedding.binning import EdgeEmbedding
from daes.embedding.registry import register_method
from daes.extras import require
from daes.registry import Reference


@register_method(
    "td",
    title="tree discretisation",
    short="TD",
    family="static binning",
    reference=Reference(
        "Guolin Ke et al.",
        "DeepGBM: A Deep Learning Framework Distilled by GBDT for Online Prediction Tasks",
        "KDD",
        2019,
    ),
    order=4,
)
class TD(EdgeEmbedding):
    """Tree discretisation: the row of the leaf that x falls into, in a tree of M leaves on this feature alone.

        e(x) = E_j,   j = #{t : t < x},   t the tree's thresholds

    The tree is fitted to the label on the rows where the feature is finite. A feature with little information gets
    fewer leaves; its other rows are not used.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `edges` (q, M − 1).

    >>> values = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    >>> method = TD(1, dim=2, num_bins=2).fit(values, labels=torch.tensor([0.0, 0.0, 1.0, 1.0]))
    >>> method.edges
    tensor([[2.5000]])

    Args:
        num_bins: largest number M of leaves.
        learner: "sklearn" for a `DecisionTreeClassifier`, "lightgbm" for the first tree of LightGBM, which is built
            from a histogram of the feature and has at least 20 rows per leaf.
    """

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_bins: int = 10,
        learner: str = "sklearn",
        **shared: Unpack[SharedOptions],
    ) -> None:
        check_choice("learner", learner, ("sklearn", "lightgbm"))
        super().__init__(num_features, dim, num_bins=num_bins, **shared)
        self.learner = learner
        self.table = self.new_table(num_features, num_bins, dim)

    def _fit(self, values: Tensor, labels: Tensor | None) -> None:
        if labels is None:
            raise ValueError("labels must be given, since td fits trees to them, got None")
        if not bool(torch.isfinite(labels).all()):
            raise ValueError("labels must be finite; some are NaN or infinite")
        super()._fit(values, labels)

    def find_edges(self, column: Floats, labels: Floats | None) -> Floats:
        if self.num_bins == 1:
            return np.empty(0)
        # Both learners convert features to float32, so clipping loses nothing.
        largest = float(np.finfo(np.float32).max)
        inputs = np.clip(column, -largest, largest).reshape(-1, 1)
        find = _sklearn_thresholds if self.learner == "sklearn" else _lightgbm_thresholds
        return find(inputs, labels, self.num_bins)


def _sklearn_thresholds(inputs: Floats, labels: Floats | None, num_leaves: int) -> Floats:
    tree = require("sklearn.tree")
    with np.errstate(over="ignore", invalid="ignore"):  # it sums the column to check that all values are finite
        fitted = tree.DecisionTreeClassifier(max_leaf_nodes=num_leaves, random_state=0).fit(inputs, labels).tree_
    inner: Floats = fitted.threshold[fitted.children_left != fitted.children_right]
    return inner


def _lightgbm_thresholds(inputs: Floats, labels: Floats | None, num_leaves: int) -> Floats:
    lightgbm = require("lightgbm")
    settings = {
        "objective": "binary",
        "num_leaves": num_leaves,
        "use_missing": False,
        "deterministic": True,
        "num_threads": 1,
        "seed": 0,
        "verbose": -1,
    }
    booster = lightgbm.train(settings, lightgbm.Dataset(inputs, labels), num_boost_round=1)
    return np.array(sorted(_thresholds_below(booster.dump_model()["tree_info"][0]["tree_structure"])))


def _thresholds_below(node: dict[str, Any]) -> list[float]:
    if "threshold" not in node:
        return []
    children = _thresholds_below(node["left_child"]) + _thresholds_below(node["right_child"])
    return [float(node["threshold"]), *children]
