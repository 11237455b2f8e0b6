import pytest
import torch

from daes.adapters.rtdl import NumericalEmbeddings
from daes.embedding import build_embedding


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)])
def test_any_batch_dimensions(shape):
    embeddings = NumericalEmbeddings(3, 8).eval()
    values = torch.randn(shape)
    out = embeddings(values)
    assert out.shape == (*shape, 8) == (*shape[:-1], *embeddings.get_output_shape())


def test_the_vectors_are_those_of_the_method():
    torch.manual_seed(0)
    embeddings = NumericalEmbeddings(2, 4, method="plr")
    torch.manual_seed(0)
    values = torch.tensor([[0.5, torch.nan], [1.0, 2.0]])
    torch.testing.assert_close(embeddings(values), build_embedding("plr", 2, 4)(values))


def test_a_forward_in_training_observes():
    embeddings = NumericalEmbeddings(2, 4)
    embeddings(torch.randn(2, 5, 2))
    assert embeddings.method.distributions.count.tolist() == [10, 10]
    embeddings.eval()(torch.randn(5, 2))
    assert embeddings.method.distributions.count.tolist() == [10, 10]


def test_a_wrong_shape():
    with pytest.raises(ValueError, match=r"x must have shape \(\*, 3\), got \(5, 2\)"):
        NumericalEmbeddings(3, 8)(torch.randn(5, 2))


def test_the_same_interface_as_the_original():
    rtdl = pytest.importorskip("rtdl_num_embeddings")
    theirs, ours = rtdl.PeriodicEmbeddings(3, 8, lite=False), NumericalEmbeddings(3, 8)
    assert theirs.get_output_shape() == ours.get_output_shape()
    values = torch.randn(5, 3)
    assert theirs(values).shape == ours(values).shape
