"""PLR against loops and against the authors' package."""

import math

import pytest
import torch

from daes.embedding.plr import PLR


def observed(num_features: int, **options: float) -> tuple[PLR, torch.Tensor]:
    """A method whose standardisation is the identity on the values: mean 0, deviation 1."""
    torch.manual_seed(0)
    method = PLR(num_features, 3, **options).double()  # type: ignore[arg-type]
    method.observe(torch.tensor([[-1.0], [1.0]], dtype=torch.float64).expand(2, num_features))
    return method.eval(), torch.rand(20, num_features, dtype=torch.float64) * 2 - 1


def test_equals_loops() -> None:
    method, values = observed(2, num_frequencies=4, sigma=1.0)
    output = method(values)
    for row in range(20):
        for feature in range(2):
            waves = [2 * math.pi * c * values[row, feature].item() for c in method.frequency[feature].tolist()]
            inputs = [math.cos(wave) for wave in waves] + [math.sin(wave) for wave in waves]
            weight, bias = method.weight[feature].tolist(), method.bias[feature].tolist()
            expected = [
                max(0.0, bias[k] + sum(x * weight[i][k] for i, x in enumerate(inputs))) for k in range(method.dim)
            ]
            assert output[row, feature].tolist() == pytest.approx(expected, abs=1e-12)


def test_equals_the_authors_package() -> None:
    package = pytest.importorskip("rtdl_num_embeddings")
    method, values = observed(3, sigma=0.5)
    peer = package.PeriodicEmbeddings(3, 3, n_frequencies=48, frequency_init_scale=0.5, lite=False).double()
    with torch.no_grad():
        peer.periodic.weight.copy_(method.frequency)
        peer.linear.weight.copy_(method.weight)
        peer.linear.bias.copy_(method.bias)
    torch.testing.assert_close(method(values), peer(values))


def test_frequencies_start_with_the_asked_deviation() -> None:
    torch.manual_seed(0)
    frequency = PLR(100, num_frequencies=100, sigma=0.3).frequency
    assert frequency.std().item() == pytest.approx(0.3, rel=0.02)
    assert frequency.mean().item() == pytest.approx(0.0, abs=0.01)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"sigma must .*got 0"):
        PLR(2, sigma=0)
    with pytest.raises(ValueError, match=r"num_frequencies must .*got 0"):
        PLR(2, num_frequencies=0)
