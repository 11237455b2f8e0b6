import numpy as np
import pytest
import torch

from daes.embedding.distributions import FeatureDistributions
from daes.engines import observe_table
from daes.evidence import Evidence
from daes.model import CTRModel
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep


@pytest.fixture(scope="module")
def history():
    return Dataset.open("adstream:3000")


def made(history, **options):
    torch.manual_seed(0)
    return CTRModel(history.schema, backbone="fnn", sizes=200, **options)


def test_it_is_what_one_pass_counts(history):
    """With room for every row the samples are the rows themselves, and nothing depends on the parts."""
    evidence = Evidence(sample_rows=5000)
    model = observe_table(made(history, evidence=evidence), history, parts=4)
    wanted = made(history, evidence=evidence)
    for batch in history.batches(500):
        rows = wanted.prepare(batch)
        wanted.observe(*rows.features)
        wanted.count(rows)
    torch.testing.assert_close(model.evidence.total, wanted.evidence.total)
    torch.testing.assert_close(model.evidence.row_counts, wanted.evidence.row_counts)
    assert isinstance(model.distributions, FeatureDistributions)
    for name in ("count", "skipped", "minimum", "maximum"):
        torch.testing.assert_close(getattr(model.distributions, name), getattr(wanted.distributions, name))
    levels = np.linspace(0.05, 0.95, 19)
    np.testing.assert_array_equal(model.distributions.quantile(levels), wanted.distributions.quantile(levels))
    assert not torch.equal(model.distributions.knots, made(history).distributions.knots)


def test_parameters_stay(history):
    model = observe_table(made(history), history)
    for (name, one), (_, other) in zip(model.named_parameters(), made(history).named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_training_goes_on_from_there(history):
    model = observe_table(made(history), history, parts=2)
    batch = Dataset.open("adstream:500").sample(500)
    step = TrainingStep(model, TrainConfig(batch_size=500))
    step.score_and_learn(batch, 0)
    assert model.evidence.total[0].item() == 3500
    assert model.distributions.count.max().item() == 3500


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"embedding": "keyvalue"}, "to be merged, the method must learn distributions only, got keyvalue"),
        ({"embedding_options": {"estimator": "gk"}}, "to be merged, distributions must be jump reservoirs"),
        ({"categorical_options": {"mode": "vocabulary"}}, "vocabularies cannot be merged"),
        ({"evidence": {"half_life": 1000.0}}, "evidence with a half-life cannot be merged"),
    ],
)
def test_what_cannot_be_merged(history, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        observe_table(made(history, **options), history)


def test_a_model_that_has_seen_rows(history):
    model = observe_table(made(history), history)
    with pytest.raises(ValueError, match="the model must have seen no rows"):
        observe_table(model, history)
