"""Slow oracles: plain Python numbers and loops, one sample at a time, reading a module's parameters by name."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import pytest
import torch
from torch import nn

from daes.backbone import Backbone

Parameters = dict[str, Any]
Formula = Callable[[Parameters, list[list[float]], list[float]], float]


class Slow:
    """What the oracles of several backbones share."""

    slope = 0.1
    """Of hidden units below 0."""

    def check(self, backbone: Backbone, formula: Formula, rows: int = 4) -> None:
        """The module in `eval()` equals the formula, which is given parameters, field vectors and plain inputs."""
        generator = torch.Generator().manual_seed(7)
        backbone.double().eval()
        scramble(backbone, generator)
        fields = torch.randn(rows, backbone.num_fields, backbone.dim, dtype=torch.float64, generator=generator)
        plain = torch.randn(rows, backbone.plain_dim, dtype=torch.float64, generator=generator)
        parameters = {name: value.tolist() for name, value in backbone.state_dict().items()}
        expected = [formula(parameters, e, r) for e, r in zip(fields.tolist(), plain.tolist(), strict=True)]
        actual = backbone(fields, plain if backbone.plain_dim else None)
        torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
        assert actual.std() > 1e-3, "the formula must depend on its inputs for the comparison to mean anything"

    @staticmethod
    def dot(left: Sequence[float], right: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(left, right, strict=True))

    def apply(self, matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
        return [self.dot(row, vector) for row in matrix]

    @staticmethod
    def flat(vectors: Sequence[Sequence[float]], plain: Sequence[float] = ()) -> list[float]:
        return [*(number for vector in vectors for number in vector), *plain]

    @staticmethod
    def pairs(count: int) -> list[tuple[int, int]]:
        return [(i, j) for i in range(count) for j in range(i + 1, count)]

    def linear(self, p: Parameters, fields: list[list[float]]) -> float:
        """Σ_i ⟨w_i, e_i⟩ + b."""
        dim = len(fields[0])
        weight = p["linear.readout.weight"][0]
        logit = p.get("linear.readout.bias", [0.0])[0]
        for i, vector in enumerate(fields):
            logit += self.dot(weight[i * dim : (i + 1) * dim], vector)
        return logit

    def norm(self, p: Parameters, name: str, values: Sequence[float]) -> list[float]:
        """BatchNorm in `eval()`."""
        mean, var, gain, shift = (p[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return [(x - mean[k]) / sqrt(var[k] + 1e-5) * gain[k] + shift[k] for k, x in enumerate(values)]

    def hidden(self, p: Parameters, name: str, values: list[float], *, batch_norm: bool) -> list[float]:
        """Hidden layers in the order linear map, BatchNorm, leaky ReLU, dropout (which does nothing in `eval()`)."""
        places = 4 if batch_norm else 3
        layer = 0
        while f"{name}.{layer * places}.weight" in p:
            values = self.apply(p[f"{name}.{layer * places}.weight"], values)
            if batch_norm:
                values = self.norm(p, f"{name}.{layer * places + 1}", values)
            else:
                bias = p[f"{name}.{layer * places}.bias"]
                values = [x + b for x, b in zip(values, bias, strict=True)]
            values = [x if x > 0 else self.slope * x for x in values]
            layer += 1
        return values

    def mlp(self, p: Parameters, values: list[float], *, name: str = "mlp", batch_norm: bool = False) -> float:
        """Hidden layers, then a logit."""
        values = self.hidden(p, f"{name}.hidden", values, batch_norm=batch_norm)
        return self.dot(p[f"{name}.readout.weight"][0], values) + p[f"{name}.readout.bias"][0]


def scramble(module: nn.Module, generator: torch.Generator) -> None:
    """Give every parameter and running statistic a value of its own, so that none hides behind a 0 or a 1."""
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2.0, generator=generator)
            elif value.is_floating_point():
                value.normal_(0.1, 0.5, generator=generator)


@pytest.fixture
def slow() -> Slow:
    return Slow()
