"""The statistics of a model, distributions and evidence, of a whole table in one pass over its parts."""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch

from daes.distribution.summary import seed_of_part
from daes.embedding.base import NumericalEmbedding
from daes.embedding.categorical import CategoricalEmbedding
from daes.embedding.distributions import FeatureDistributions
from daes.engines.base import Engine, LocalEngine
from daes.engines.table import Part, table_parts
from daes.evidence.inputs import EvidenceInputs
from daes.model import CTRModel
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema


@dataclass
class ModelStatistics:
    """The distributions and evidence of a model, without its parameters."""

    distributions: FeatureDistributions | None
    evidence: EvidenceInputs
    table: CategoricalEmbedding | None
    """Maps ids to rows; its vectors are not used."""

    def merge(self, other: "ModelStatistics") -> "ModelStatistics":
        """Add the statistics of other rows to these."""
        if self.distributions is not None and other.distributions is not None:
            self.distributions.merge(other.distributions)
        self.evidence.merge(other.evidence)
        return self


def _count(empty: ModelStatistics, schema: Schema, seed: int, part: Part) -> ModelStatistics:
    """The statistics of a part of a table."""
    made = deepcopy(empty)
    seed = seed_of_part(seed, part.number)
    if made.distributions is not None:
        made.distributions.seed = seed
    if made.evidence.sample is not None:
        made.evidence.sample.seed = seed
    for batch in part.batches(schema):
        numbers, ids = torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical)
        if made.distributions is not None:
            made.distributions.observe(numbers)
        if batch.label is not None:
            rows = ids if made.table is None else made.table.rows(ids)
            made.evidence.update(numbers, rows, torch.from_numpy(batch.label))
    return made


def observe_table(
    model: CTRModel, data: Dataset, *, engine: Engine | None = None, parts: int = 1, seed: int = 0
) -> CTRModel:
    """Add all rows of a table to the distributions and the evidence of a new model; its parameters do not change.

    For a history before the stream: the model starts with its quantiles and click counts instead of none. Do not train
    on the same rows afterwards: their own labels would be among the counts.

    Distributions are uniform samples of all rows, and counts of ids are exact sums. As always, bins of numbers and
    their counts come from a uniform sample of rows. The same dataset, parts and seed give the same bits on every
    engine.

    Args:
        model: a model on the CPU that has seen no rows. It is changed.
        data: the rows, with the model's columns.
        engine: the engine that reads; by default this process.
        parts: number of parts of the table, see `table_parts`.
        seed: seed of the random numbers.

    >>> history = Dataset.open("adstream:2000")
    >>> model = observe_table(CTRModel(history.schema, sizes=100), history, parts=3)
    >>> model.evidence.total[0].item(), model.distributions.count.max().item()
    (2000.0, 2000)
    """
    work = partial(_count, _empty_statistics(model), model.schema, seed)
    found = (engine or LocalEngine()).map_merge(work, table_parts(data, parts), ModelStatistics.merge)
    if found.distributions is not None:
        assert model.distributions is not None
        model.distributions.load_state_dict(found.distributions.state_dict())
    model.evidence.load_state_dict(found.evidence.state_dict())
    return model


def _empty_statistics(model: CTRModel) -> ModelStatistics:
    """The statistics of a model; an error unless they are empty and can be merged."""
    method, table = model.numerical, model.categorical
    if method is not None and type(method)._observe is not NumericalEmbedding._observe:
        raise ValueError(f"to be merged, the method must learn distributions only, got {model.config['embedding']}")
    if method is not None and method.distributions is not None and model.distributions is None:
        raise ValueError("to be merged, distributions must be jump reservoirs, got another estimator or a frozen model")
    if table is not None and table.vocabulary is not None:
        raise ValueError('vocabularies cannot be merged: the categories must have mode="hash"')
    if model.evidence.options.half_life is not None:
        raise ValueError("evidence with a half-life cannot be merged: ages in two parts are not comparable")
    if float(model.evidence.total[0]) or (model.distributions is not None and bool(model.distributions.count.any())):
        raise ValueError("the model must have seen no rows")
    rows = None if table is None else CategoricalEmbedding(table.sizes, 1)
    return ModelStatistics(model.distributions, model.evidence, rows)
