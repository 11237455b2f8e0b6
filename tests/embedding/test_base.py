"""What every method inherits: plain inputs beside the fields, from one pass."""

import pytest
import torch

from daes import native
from daes.embedding import METHODS, FeatureDistributions, NumericalEmbedding, build_embedding
from daes.embedding import knots as knots_module

KINDS = ["score", "value", "rank"]


def values(rows=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, 3, generator=generator).exp()
    return numbers.masked_fill(torch.rand(rows, 3, generator=generator) < 0.1, torch.nan)


def build(name, **options):
    torch.manual_seed(0)
    method = build_embedding(name, 3, 4, **options)
    if method.offline:
        labels = (torch.arange(300) % 3 == 0).float()
        method.fit(values(), labels)
    return method


@pytest.mark.parametrize("name", METHODS)
class TestPlainInputs:
    def test_every_method_gives_them_by_one_option(self, name, monkeypatch):
        # Compiled loops, which serve some choices of plain inputs alone, round in another order.
        monkeypatch.setattr(native, "_library", None)
        method, without = build(name, plain=KINDS), build(name, plain=[])
        fields, plain = method.outputs(values())
        torch.testing.assert_close(without(values()), fields, rtol=0, atol=0)
        own = method.plain_dim - 9
        assert (plain.shape, own) == ((300, method.plain_dim), without.plain_dim)
        known = method.distributions
        places = known.place(values().nan_to_num())
        expected = torch.cat(
            [known.score(places), known.standardised(values()), known.input("rank", values(), places)], 1
        )
        missing = values().isnan().repeat(1, 3)
        torch.testing.assert_close(plain[:, own:], expected.masked_fill(missing, 0.0))
        assert plain[:, own:].abs().sum() > 0

    def test_there_is_no_order_between_calls(self, name):
        first, second = build(name, plain=KINDS), build(name, plain=KINDS)
        plain = first.outputs(values()).plain
        second(values())
        torch.testing.assert_close(second.eval().outputs(values()).plain, plain, rtol=0, atol=0)

    def test_the_knots_are_searched_once(self, name, monkeypatch):
        calls, coordinate = [], knots_module.coordinate
        monkeypatch.setattr(knots_module, "coordinate", lambda *given: calls.append(1) or coordinate(*given))
        build(name, plain=KINDS).outputs(values())
        assert len(calls) == 1


def test_a_method_without_plain_inputs_keeps_no_distributions():
    assert build("efd").distributions is None
    assert isinstance(build("efd", plain=["value"]).distributions, FeatureDistributions)


def test_shared_options_reach_the_reservoirs():
    known = build("fe", plain=["score"], reservoir_size=50, seed=4).distributions
    assert (known.reservoir_size, known.seed) == (50, 4)


@pytest.mark.parametrize("plain", ["score", ["level"], ["score", "score"]])
def test_bad_names_are_shown(plain):
    with pytest.raises(ValueError, match="plain must be a list of distinct names from value, score, rank, got "):
        build("efd", plain=plain)


def test_what_a_method_of_ones_own_lacks_is_said():
    class Flat(NumericalEmbedding):
        def encode(self, values, place, context):
            return values

    class Placed(NumericalEmbedding):
        reads_place = True

        def encode(self, values, place, context):
            return place.unsqueeze(-1).expand(-1, -1, self.dim)

    with pytest.raises(ValueError, match=r"encode of Flat must return \(B, 3, 4\), got \(300, 3\)"):
        Flat(3, 4)(values())
    with pytest.raises(ValueError, match="num_knots must be given to the base class of Placed, which reads places"):
        Placed(3, 4)(values())
    assert Placed(3, 4, num_knots=10)(values()).shape == (300, 3, 4)
