"""Rivals that a practitioner would try first: boosted trees and a linear model that learn from the same rows."""

from daes.experiments.rivals.base import RIVALS, Rival, RivalEntry, register_rival
from daes.experiments.rivals.ftrl import FTRL
from daes.experiments.rivals.trees import RetrainedTrees

__all__ = ["FTRL", "RIVALS", "RetrainedTrees", "Rival", "RivalEntry", "register_rival"]
