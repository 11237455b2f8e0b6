"""The normal score Φ⁻¹(p)."""

import torch
from torch import Tensor

# Acklam's rational approximations of the inverse normal CDF, relative error below 1.2e-9.
_CENTRE_TOP = (
    -39.69683028665376,
    220.9460984245205,
    -275.9285104469687,
    138.3577518672690,
    -30.66479806614716,
    2.506628277459239,
)
_CENTRE_BOTTOM = (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0)
_TAIL_TOP = (
    -7.784894002430293e-03,
    -0.3223964580411365,
    -2.400758277161838,
    -2.549732539343734,
    4.374664141464968,
    2.938163982698783,
)
_TAIL_BOTTOM = (7.784695709041462e-03, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0)
_TAIL = 0.02425


def normal_score(rank: Tensor) -> Tensor:
    """Φ⁻¹(p), element by element, for p in (0, 1).

    >>> normal_score(torch.tensor([0.5, 0.975]))
    tensor([0.0000, 1.9600])
    """
    if torch.compiler.is_exporting():
        return _rational_score(rank)  # ONNX has no inverse normal CDF
    score: Tensor = torch.special.ndtri(rank)
    return score


def _rational_score(rank: Tensor) -> Tensor:
    deviation = rank - 0.5
    square = deviation * deviation
    centre = deviation * _polynomial(square, _CENTRE_TOP) / _polynomial(square, _CENTRE_BOTTOM)
    depth = torch.sqrt(-2.0 * torch.log(torch.minimum(rank, 1.0 - rank).clamp(max=_TAIL)))
    tail = _polynomial(depth, _TAIL_TOP) / _polynomial(depth, _TAIL_BOTTOM)
    return torch.where(deviation.abs() <= 0.5 - _TAIL, centre, torch.where(deviation > 0, -tail, tail))


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    result = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result
