"""The normal score Φ⁻¹(p)."""

import torch
from torch import Tensor

# Φ⁻¹(p) is nearly proportional to the logit x of p: their quotient is a ratio of polynomials in x², up to 6e-8. All
# coefficients are positive, so nothing cancels in float32. Fitted by least squares, reweighted for the largest error.
_RATIOS = (
    (
        0.005,  # |x| ≤ 5.3
        (0.626657035, 0.06732191776, 1.598769864e-3, 5.277237287e-6),
        (1.0, 0.1253133493, 3.826118819e-3, 2.123147135e-5),
    ),
    (
        1e-7,  # |x| ≤ 16.2
        (0.6266570459, 0.0847419458, 3.258299434e-3, 3.884832601e-5, 1.170490978e-7, 4.668171408e-11),
        (1.0, 0.153111837, 6.971291142e-3, 1.042714202e-4, 4.343714268e-7, 3.12199171e-10),
    ),
)


def normal_score(rank: Tensor, margin: float = 0.0) -> Tensor:
    """Φ⁻¹(p), elementwise, for p in (0, 1); in an exported program for p from 1e-7 to 1 − 1e-7.

    If no p is closer to 0 or 1 than `margin`, an exported program may need fewer operations.

    >>> normal_score(torch.tensor([0.5, 0.975]))
    tensor([0.0000, 1.9600])
    """
    if not torch.compiler.is_exporting():
        score: Tensor = torch.special.ndtri(rank)
        return score
    # ONNX has no inverse normal CDF.
    _, top, bottom = next((ratio for ratio in _RATIOS if margin >= ratio[0]), _RATIOS[-1])
    logit = torch.log(rank / (1.0 - rank))
    square = logit * logit
    return logit * _polynomial(square, top) / _polynomial(square, bottom)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """The polynomial with these coefficients, from the constant term on."""
    result = coefficients[-1] * x + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * x + coefficient
    return result
