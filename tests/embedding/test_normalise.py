"""The streaming normalisers against statistics of everything at once."""

import copy
import math
from fractions import Fraction

import pytest
import torch
from safetensors.torch import load, save

from daes.embedding.normalise import MinMax, Normaliser, Standardise

ALL = (MinMax, Standardise)


def finite_column(data: torch.Tensor, feature: int) -> list[float]:
    return [value for value in data[:, feature].tolist() if math.isfinite(value)]


def clamped(value: float, column: list[float]) -> float:
    return min(max(value, min(column)), max(column))


def min_max_of(value: float, column: list[float]) -> float:
    low, high = min(column), max(column)
    return 0.0 if low == high else (clamped(value, column) - low) / (high - low)


def standard_score_of(value: float, column: list[float]) -> float:
    exact = [Fraction(x) for x in column]
    mean = sum(exact) / len(exact)
    variance = sum((x - mean) ** 2 for x in exact) / len(exact)
    return 0.0 if variance == 0 else float(Fraction(clamped(value, column)) - mean) / math.sqrt(variance)


@pytest.mark.parametrize("num_batches", [1, 2, 7, 300])
@pytest.mark.parametrize("kind", ALL)
def test_equals_the_statistics_of_the_whole_stream(
    kind: type[Normaliser], num_batches: int, hostile_stream: torch.Tensor
) -> None:
    data = hostile_stream
    normaliser = kind(6)
    for batch in data.tensor_split(num_batches):
        normaliser.observe(batch)
    probes = torch.cat([data[:40].nan_to_num(0.0, 1e9, -1e9), torch.tensor([[-1e30] * 6, [1e30] * 6]).double()])
    output = normaliser(probes)
    oracle = {MinMax: min_max_of, Standardise: standard_score_of}[kind]
    for feature in range(6):
        column = finite_column(data, feature)
        for row, value in enumerate(probes[:, feature].tolist()):
            expected = oracle(value, column) if column else 0.0
            assert output[row, feature].item() == pytest.approx(expected, abs=1e-9), (feature, value)


def test_splitting_the_stream_changes_no_bit_of_the_range(hostile_stream: torch.Tensor) -> None:
    data = hostile_stream
    whole, parts = MinMax(6), MinMax(6)
    whole.observe(data)
    for batch in data.split(13):
        parts.observe(batch)
    assert all(torch.equal(parts.state_dict()[name], value) for name, value in whole.state_dict().items())


def test_the_variance_survives_a_mean_far_from_zero() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(5000, 1, generator=generator, dtype=torch.float64)
    normaliser = Standardise(1)
    for batch in (noise + 1e9).split(64):
        normaliser.observe(batch)
    assert normaliser.variance.item() == pytest.approx(noise.var(correction=0).item(), rel=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_nothing_observed_gives_zero(kind: type[Normaliser]) -> None:
    normaliser = kind(2)
    normaliser.observe(torch.empty(0, 2))
    normaliser.observe(torch.tensor([[torch.nan, torch.inf]]))
    assert torch.equal(normaliser(torch.tensor([[0.0, 5.0], [-1e30, 3e38]])), torch.zeros(2, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ALL)
def test_the_widest_and_the_narrowest_ranges_stay_finite(kind: type[Normaliser], dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    wide = torch.linspace(-1.0, 1.0, 9, dtype=dtype) * info.max
    narrow = torch.arange(9, dtype=dtype) * info.tiny
    data = torch.stack([wide, narrow], 1)
    normaliser = kind(2)
    for batch in data.split(2):
        normaliser.observe(batch)
    output = normaliser(data)
    assert output.isfinite().all()
    assert output.abs().max() <= 3.0
    if isinstance(normaliser, Standardise):
        assert normaliser.variance.isfinite().all()
    if isinstance(normaliser, MinMax):
        torch.testing.assert_close(output, (torch.arange(9, dtype=dtype) / 8).unsqueeze(1).expand(9, 2))
    assert normaliser(torch.tensor([[info.min] * 2, [info.max] * 2], dtype=dtype)).isfinite().all()


@pytest.mark.parametrize("kind", ALL)
def test_a_cast_of_the_model_keeps_the_statistics(kind: type[Normaliser], hostile_stream: torch.Tensor) -> None:
    data = hostile_stream.float()
    normaliser = kind(6)
    normaliser.observe(data)
    probes = data.nan_to_num(0.0, 0.0, 0.0)
    expected = normaliser(probes)
    for cast in (copy.deepcopy(normaliser).bfloat16(), copy.deepcopy(normaliser).float()):
        assert torch.equal(cast(probes), expected)
        cast.observe(data)


@pytest.mark.parametrize("kind", ALL)
def test_the_state_loads_strictly_and_goes_on_alike(kind: type[Normaliser], hostile_stream: torch.Tensor) -> None:
    data = hostile_stream
    normaliser, fresh = kind(6), kind(6)
    normaliser.observe(data[:200])
    fresh.load_state_dict(load(save(normaliser.state_dict())), strict=True)
    probes = data.nan_to_num(0.0, 0.0, 0.0)
    for _ in range(2):
        assert torch.equal(fresh(probes), normaliser(probes))
        normaliser.observe(data[200:])
        fresh.observe(data[200:])


@pytest.mark.parametrize("kind", ALL)
def test_the_result_has_the_dtype_of_the_values(kind: type[Normaliser], hostile_stream: torch.Tensor) -> None:
    normaliser = kind(6)
    normaliser.observe(hostile_stream)
    for dtype in (torch.float32, torch.float64):
        assert normaliser(torch.zeros(3, 6, dtype=dtype)).dtype == dtype


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"num_features must .*got 0"):
        MinMax(0)
