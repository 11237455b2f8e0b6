import pytest
import torch
from scipy.special import ndtri

from daes.embedding import METHODS, build_embedding
from daes.embedding.fe import FE


def encoded(method, values):
    """The vectors of a method that has seen the values, in evaluation."""
    method.train()(values)
    return method.eval()(values)


@pytest.mark.parametrize("name", ["fe", "plr", "dlrm"])
def test_a_logarithm_is_the_method_on_logarithms(name):
    values = torch.randn(200, 2).exp() ** 3 - 1
    logs = values.sign() * torch.log1p(values.abs())
    torch.manual_seed(0)
    one = build_embedding(name, 2, 4, input="log")
    other = build_embedding(name, 2, 4)
    other.load_state_dict(one.state_dict())
    assert torch.allclose(encoded(one, values), encoded(other, logs), atol=1e-6)


def test_a_score_is_the_normal_score_of_the_rank():
    values = torch.arange(1.0, 1001.0).unsqueeze(1) ** 5
    method = FE(1, 2, input="score", num_knots=100)
    vectors = encoded(method, values) / method.table
    expected = torch.from_numpy(ndtri(torch.linspace(0.1, 0.9, 9).numpy())).float()
    assert torch.allclose(vectors[99:900:100, 0, 0], expected, atol=0.02)
    # Only the order counts.
    other = FE(1, 2, input="score", num_knots=100)
    again = encoded(other, values.log()) / other.table
    assert torch.allclose(again[99:900:100], vectors[99:900:100], atol=1e-3)


@pytest.mark.parametrize("name", ["autodis", "deer"])
def test_a_rank_lies_between_0_and_1(name):
    method = build_embedding(name, 1, 4, input="rank")
    values = torch.arange(0.0, 1000.0).unsqueeze(1).div(12).exp()
    encoded(method, values)
    scaled = method.scaled(values, method.distributions.place(values))
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert scaled[499, 0] == pytest.approx(0.5, abs=0.01)


def test_what_authors_do_is_an_option_that_the_method_has():
    chosen = {name: dict(entry.authors) for name, entry in METHODS.items() if entry.authors}
    assert chosen == {
        "fe": {"input": "score"},
        "plr": {"input": "score"},
        "dlrm": {"input": "log"},
        "autodis": {"input": "log"},
        "deer": {"input": "rank"},
    }
    for name, options in chosen.items():
        build_embedding(name, 2, 4, **options)
    with pytest.raises(ValueError, match="input must be one of value, log, score, got 'rank'"):
        build_embedding("fe", 2, input="rank")
