"""The normal score Φ⁻¹(p)."""

import torch
from torch import Tensor

# Wichura's algorithm AS 241, PPND7: ratios of polynomials, relative error about 1e-7. No coefficient is negative, so
# that nothing cancels in float32.
_CENTRE = (3.3871327179, 50.434271938, 159.29113202, 59.109374720), (1.0, 17.895169469, 78.757757664, 67.187563600)
_TAIL = (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103), (1.0, 0.73700164250, 0.12021132975)
_FAR_TAIL = (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997), (1.0, 0.24197894225, 0.012258202635)


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
    centre = deviation * _ratio((0.180625 - deviation.square()).clamp(min=0.0), _CENTRE)
    depth = torch.sqrt(-torch.log(torch.minimum(rank, 1.0 - rank)))
    tail = torch.where(depth <= 5.0, _ratio(depth - 1.6, _TAIL), _ratio(depth - 5.0, _FAR_TAIL))
    return torch.where(deviation.abs() <= 0.425, centre, torch.where(deviation > 0, tail, -tail))


def _ratio(x: Tensor, polynomials: tuple[tuple[float, ...], tuple[float, ...]]) -> Tensor:
    """The ratio of two polynomials, coefficients from the constant term on."""
    top, bottom = (_polynomial(x, coefficients) for coefficients in polynomials)
    return top / bottom


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    result = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result
