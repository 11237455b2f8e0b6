import pytest
import torch

from daes.backbone.base import Backbone
from daes.backbone.fm import FM
from daes.backbone.fnn import FNN
from daes.backbone.lr import LR


def test_a_formula_is_all_that_a_subclass_writes():
    with pytest.raises(TypeError, match="abstract"):
        Backbone(3, 2)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_fields": 0}, ValueError, "num_fields must be positive, got 0"),
        ({"num_fields": -1, "plain_dim": 2}, ValueError, "num_fields must not be negative, got -1"),
        ({"dim": 0}, ValueError, "dim must be positive, got 0"),
        ({"dim": 2.5}, TypeError, "dim must be an integer, got 2.5"),
        ({"plain_dim": -1}, ValueError, "plain_dim must not be negative, got -1"),
        ({"hidden": (8, 0)}, ValueError, r"hidden must hold positive integers only, got \(8, 0\)"),
        ({"hidden": 8}, TypeError, "hidden must be a sequence of integers, got 8"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"batch_norm": 1}, TypeError, "batch_norm must be True or False, got 1"),
    ],
)
def test_settings_are_checked(settings, error, message):
    with pytest.raises(error, match=message):
        FNN(**{"num_fields": 3, "dim": 2, **settings})


@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 2), (5, 3, 4), (5, 3, 2, 1)])
def test_fields_must_have_their_shape(shape):
    with pytest.raises(ValueError, match=r"fields must have shape \(B, 3, 2\), got \(5"):
        FNN(3, 2)(torch.randn(shape))


def test_fields_must_be_vectors_not_ids():
    with pytest.raises(TypeError, match=r"fields must be vectors of a floating-point type, got torch.int64"):
        FNN(3, 2)(torch.zeros(5, 3, 2, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(5, 3), (4, 2), (5,), (5, 2, 1)])
def test_plain_must_have_its_shape(shape):
    with pytest.raises(ValueError, match=r"plain must have shape \(5, 2\), got \("):
        FNN(3, 2, plain_dim=2)(torch.randn(5, 3, 2), torch.randn(shape))


def test_plain_must_be_real_numbers():
    with pytest.raises(TypeError, match=r"plain must be of a floating-point type, got torch.int64"):
        FNN(3, 2, plain_dim=2)(torch.randn(5, 3, 2), torch.ones(5, 2, dtype=torch.int64))


def test_plain_must_be_given_where_expected():
    with pytest.raises(ValueError, match=r"plain must have shape \(B, 2\), got None"):
        FNN(3, 2, plain_dim=2)(torch.randn(5, 3, 2))


def test_plain_must_not_be_given_where_not_expected():
    with pytest.raises(ValueError, match=r"plain must be None for a backbone of plain_dim=0, got shape \(5, 2\)"):
        FNN(3, 2)(torch.randn(5, 3, 2), torch.randn(5, 2))


def test_a_model_without_a_place_for_plain_inputs_refuses_them():
    with pytest.raises(ValueError, match=r"plain_dim must be 0 for FM, which has no MLP.*got 2"):
        FM(3, 2, plain_dim=2)


def test_logits_must_be_one_per_row():
    class Column(Backbone):
        def _logit(self, fields, plain):
            return fields.sum((1, 2)).unsqueeze(1)

    with pytest.raises(ValueError, match=r"_logit of Column must return shape \(B,\), got \(5, 1\)"):
        Column(3, 2)(torch.randn(5, 3, 2))


def test_what_a_backbone_prints():
    assert repr(LR(3, 2)).splitlines()[1].strip() == "num_fields=3, dim=2, plain_dim=0"
