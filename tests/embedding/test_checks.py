"""Every registered method passes every check, and each check finds the fault that it is there for."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from daes.embedding import DAES, METHODS, Context, NumericalEmbedding, build_embedding, register_method
from daes.embedding.checks import CHECKS, check_embedding

OPTIONS: dict[str, dict[str, Any]] = {"dlrm": {"hidden": (8, 4)}, "ld": {"max_ids": 40}}
MAKERS: dict[str, Callable[[], NumericalEmbedding]] = {
    name: lambda name=name: build_embedding(name, num_features=3, dim=4, **OPTIONS.get(name, {})) for name in METHODS
}
VARIANTS: dict[str, Callable[[], NumericalEmbedding]] = {
    "score path, fine knots, concatenated context": lambda: DAES(
        3, 4, knots=40, linear="score", context_pool="concat", num_context=2
    ),
    "tran on hats, small reservoir": lambda: DAES(3, 4, modulation="tran", basis="hat", reservoir_size=50),
    "value space, value path": lambda: DAES(3, 4, value_space=True, linear="value", num_meta=3),
    "reservoirs with a half-life": lambda: DAES(3, 4, estimator_options={"half_life": 100.0}, reservoir_size=50),
    "GK sketches, bounds": lambda: DAES(3, 4, estimator="gk", bounds=(0.0, 50.0), modulation=None),
    "fixed knots": lambda: DAES.from_knots(torch.tensor([[0.0, 5.0, 10.0], [-9.0, 0.0, 7.0], [1.0, 2.0, 3.0]]), 4),
    "key-value over the range": lambda: build_embedding("keyvalue", 3, 4, input="minmax"),
    "FE of normal scores": lambda: build_embedding("fe", 3, 4, input="score"),
    "DLRM of logarithms": lambda: build_embedding("dlrm", 3, 4, hidden=(8, 4), input="log"),
    "AutoDis of logarithms": lambda: build_embedding("autodis", 3, 4, input="log"),
    "DEER of ranks": lambda: build_embedding("deer", 3, 4, input="rank"),
    "summed digits": lambda: build_embedding("narydis", 3, 4, pool="sum"),
}
NOT_PROMISED = {
    ("dae", "check_batch_splits"): "order statistics are those of batches",
    ("GK sketches, bounds", "check_batch_splits"): "the sketch compacts a batch at a time",
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", [*MAKERS, *VARIANTS])
def test_every_method_passes(method: str, check: str) -> None:
    if (method, check) in NOT_PROMISED:
        pytest.skip(NOT_PROMISED[method, check])
    CHECKS[check]((MAKERS | VARIANTS)[method])


class Plain(NumericalEmbedding):
    """As a user might write one: the place within the range seen times a vector, shifted by the context."""

    uses_context = True
    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__(2, 3)
        self.table = self.new_table(2, 3)
        self.register_buffer("low", torch.full((2,), torch.inf))
        self.register_buffer("high", torch.full((2,), -torch.inf))

    def _observe(self, values: Tensor) -> None:
        seen = torch.isfinite(values)
        self.low.copy_(torch.minimum(self.low, values.where(seen, torch.inf).amin(0)))
        self.high.copy_(torch.maximum(self.high, values.where(seen, -torch.inf).amax(0)))

    def scaled(self, values: Tensor) -> Tensor:
        some = self.high > self.low
        low, high = self.low.where(some, 0.0) / 2, self.high.where(some, 1.0) / 2
        return ((values / 2 - low) / (high - low)).clamp(0.0, 1.0).to(self.table.dtype)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        encoded = self.scaled(values).unsqueeze(-1) * self.table
        if context is None:
            return encoded
        vectors = context.vectors[context.index] if isinstance(context, Context) else context
        return encoded * torch.sigmoid(vectors).unsqueeze(1)


class Widened(Plain):
    def encode(self, values, place, context):
        return super().encode(values, place, context).double()


class Flat(Plain):
    def encode(self, values, place, context):
        return super().encode(values, place, context).flatten(1)


class Centred(Plain):
    def encode(self, values, place, context):
        encoded = super().encode(values, place, context)
        return encoded - encoded.mean(0)


class ZeroForMissing(Plain):
    def _fill_missing(self, encoded, missing):
        return encoded.masked_fill(missing.unsqueeze(-1), 0.0)


class Unclamped(Plain):
    def scaled(self, values):
        return values


class LearnsInfinity(Plain):
    def _observe(self, values):
        super()._observe(values.nan_to_num(nan=torch.nan))


class DividesByWidth(Plain):
    def scaled(self, values):
        return ((values - self.low) / (self.high - self.low)).clamp(0.0, 1.0)


class CountsBatches(Plain):
    def observe(self, values):
        super().observe(values)
        self.high += 1


class Unfitted(Plain):
    offline = True

    def _fit(self, values, labels):
        self._observe(values)

    def _check_fitted(self):
        return


class Unchecked(Plain):
    def _check(self, values):
        return


class WritesItsInput(Plain):
    def _observe(self, values):
        super()._observe(values.nan_to_num_())


class Jumps(Plain):
    def scaled(self, values):
        return (super().scaled(values) * 10).round() / 10


class Unused(Plain):
    def __init__(self):
        super().__init__()
        self.spare = nn.Parameter(torch.ones(2))

    def encode(self, values, place, context):
        return super().encode(values, place, context) + 0 * self.spare.sum()


class DoubledGradient(Plain):
    def encode(self, values, place, context):
        encoded = super().encode(values, place, context)
        return 2 * encoded - encoded.detach()


class IgnoresSharedContext(Plain):
    def encode(self, values, place, context):
        return super().encode(values, place, None if isinstance(context, Context) else context)


class AlwaysFloat(Plain):
    def encode(self, values, place, context):
        return super().encode(values, place, context).float()


class CastsStatistics(Plain):
    def _apply(self, fn, recurse=True):
        return nn.Module._apply(self, fn, recurse)


class NothingUnderAutocast(Plain):
    def scaled(self, values):
        return super().scaled(values) * (not torch.is_autocast_enabled("cpu"))


class ObservesInEval(Plain):
    def encode(self, values, place, context):
        self.high.copy_(torch.maximum(self.high, values.amax(0)))
        return super().encode(values, place, context)


class ObservesLast(Plain):
    def outputs(self, values, context=None):
        training, self.training = self.training, False
        result = super().outputs(values, context)
        self.training = training
        if training and self.observe_in_forward:
            self.observe(values)
        return result


class Noisy(Plain):
    def encode(self, values, place, context):
        noise = torch.rand_like(values).unsqueeze(-1) if self.training else 0.0
        return super().encode(values, place, context) + noise


class LastBatchOnly(Plain):
    def _observe(self, values):
        self.low.fill_(torch.inf)
        self.high.fill_(-torch.inf)
        super()._observe(values)


class ForgetsItsRange(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", self.low, persistent=False)


class SharedByAll(Plain):
    known: ClassVar[list[Tensor]] = []

    def get_extra_state(self):
        return torch.tensor(len(self.known))

    def set_extra_state(self, state):
        return

    def _observe(self, values):
        self.known.append(values)
        super()._observe(values)


class OtherwiseCompiled(Plain):
    def scaled(self, values):
        return super().scaled(values) * (0.5 if torch.compiler.is_compiling() else 1.0)


class OtherwiseExported(Plain):
    def scaled(self, values):
        return super().scaled(values) * (0.5 if torch.compiler.is_exporting() else 1.0)


FAULTS: dict[str, type[Plain]] = {
    "check_shape_and_dtype": Widened,
    "check_rows_are_independent": Centred,
    "check_missing_values": ZeroForMissing,
    "check_infinite_and_far_values": Unclamped,
    "check_infinite_values_are_not_observed": LearnsInfinity,
    "check_extreme_columns": DividesByWidth,
    "check_few_rows": CountsBatches,
    "check_unprepared": Unfitted,
    "check_wrong_input": Unchecked,
    "check_input_is_unchanged": WritesItsInput,
    "check_continuity": Jumps,
    "check_gradients_reach_every_parameter": Unused,
    "check_gradients_are_exact": DoubledGradient,
    "check_context_forms": IgnoresSharedContext,
    "check_float64": AlwaysFloat,
    "check_bfloat16": CastsStatistics,
    "check_autocast": NothingUnderAutocast,
    "check_eval_changes_nothing": ObservesInEval,
    "check_training_observes_first": ObservesLast,
    "check_seeds_reproduce": Noisy,
    "check_batch_splits": LastBatchOnly,
    "check_state_round_trip": ForgetsItsRange,
    "check_copies": SharedByAll,
    "check_compile": OtherwiseCompiled,
    "check_export": OtherwiseExported,
    "check_onnx": OtherwiseExported,
}


@pytest.fixture
def jumps_is_called_continuous() -> Iterator[None]:
    register_method("jumps", title="wrongly registered", family="neural", continuous=True)(Jumps)
    yield
    del METHODS["jumps"]


def test_a_method_of_ones_own_passes() -> None:
    check_embedding(Plain)


@pytest.mark.usefixtures("jumps_is_called_continuous")
@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found(check: str) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        CHECKS[check](FAULTS[check])


def test_every_check_has_a_fault_to_find() -> None:
    assert CHECKS.keys() - FAULTS.keys() == {"check_device"}  # which needs one


def test_the_example_of_the_docs_passes(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "new-method.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (check,) = re.findall(r"`(check_embedding\(.*?\))` of `daes.embedding.checks`", text)
    example += f"from daes.embedding.checks import check_embedding\n{check}\n"
    script = tmp_path / "example.py"  # pickling a class needs a module to find it in
    script.write_text(example, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("jumps_is_called_continuous")
def test_what_is_found_is_named() -> None:
    with pytest.raises(AssertionError, match="check_continuity: the embedding must be continuous"):
        check_embedding(Jumps, skip=CHECKS.keys() - {"check_continuity"})
    with pytest.raises(AssertionError, match=r"check_float64: ValueError: encode of Flat must return \(B, 2, 3\)"):
        check_embedding(Flat, skip=CHECKS.keys() - {"check_float64"})
    with pytest.raises(ValueError, match="skip must hold names of checks, got check_all"):
        check_embedding(Plain, skip=["check_all"])
    with pytest.raises(TypeError, match="make must be a function that makes what is checked, got a Plain"):
        check_embedding(Plain())
