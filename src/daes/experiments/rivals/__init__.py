"""What a practitioner tries first, beside the models: boosted trees and linear models that learn from the same rows."""

from daes.experiments.rivals.base import RIVALS, Rival, RivalEntry, register_rival
from daes.experiments.rivals.ftrl import FTRL
from daes.experiments.rivals.trees import RetrainedTrees

__all__ = ["FTRL", "RIVALS", "RetrainedTrees", "Rival", "RivalEntry", "register_rival"]
