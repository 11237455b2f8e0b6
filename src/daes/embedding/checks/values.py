"""Checks of a method's outputs for ordinary, unusual and invalid values."""

from functools import partial

import torch
from torch import Tensor

from daes.checking import ensure, ensure_close, ensure_finite, ensure_same, ensure_same_state, error_of, state_of
from daes.embedding.base import Context, NotFittedError, NumericalEmbedding
from daes.embedding.checks.sample import FlatOutputs, Make, make_sample, new, outputs, ready, started
from daes.embedding.registry import METHODS


def check_shape_and_dtype(make: Make) -> None:
    """Fields are (B, q', d) and plain inputs (B, plain_dim), in the dtype of the parameters."""
    method = ready(make)
    sample = make_sample(method)
    rows = len(sample.values)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        values = sample.values.to(dtype)
        fields, plain = method.outputs(values, sample.context)
        expected: tuple[int, ...] = (rows, method.num_outputs, method.dim)
        ensure(fields.shape == expected, f"fields must have shape {expected}, got {tuple(fields.shape)}")
        ensure(fields.dtype == method.missing.dtype, f"fields must be {method.missing.dtype}, got {fields.dtype}")
        ensure((plain is None) == (method.plain_dim == 0), "plain must be None just where plain_dim is 0")
        if plain is not None:
            expected = (rows, method.plain_dim)
            ensure(plain.shape == expected, f"plain must have shape {expected}, got {tuple(plain.shape)}")
            ensure(plain.dtype == method.missing.dtype, f"plain must be {method.missing.dtype}, got {plain.dtype}")
        with torch.no_grad():
            ensure_same(method(values, sample.context), fields, "the result of a call and the fields of outputs")
        ensure_same(
            outputs(method, values, sample.context),
            outputs(method, values.float(), sample.context),
            f"{dtype} values and the same numbers as float32",
        )


def check_rows_are_independent(make: Make) -> None:
    """In `eval()` the output of a row does not depend on the other rows, nor on their order."""
    method = ready(make)
    values, _, context, _ = make_sample(method, 32)
    together = outputs(method, values, context)
    order = torch.arange(len(values) - 1, -1, -1)
    ensure_close(outputs(method, values[order], context[order]), together[order], "rows in another order")
    alone = [outputs(method, values[row : row + 1], context[row : row + 1]) for row in range(len(values))]
    ensure_close(torch.cat(alone), together, "rows one by one and together")


def check_missing_values(make: Make) -> None:
    """NaN becomes the feature's learned vector, whatever the context, and does not affect other entries."""
    method = ready(make)
    values, _, context, _ = make_sample(method, 32, missing=False)
    holes = values.clone()
    holes[::2, 0] = torch.nan
    result = method(holes, context)
    ensure_finite(outputs(method, holes, context), "the embedding of rows with missing values")
    ensure_finite(outputs(method, torch.full_like(values, torch.nan), context), "the embedding of missing rows")
    ensure_close(result[1::2], method(values, context)[1::2], "rows beside missing values")
    if method.num_outputs == method.num_features:
        ensure_same(result[::2, 0], method.missing[:1].expand(16, -1), "a missing value and the learned vector")
        ensure_close(result[:, 1:], method(values, context)[:, 1:], "features beside a missing one")


def check_infinite_and_far_values(make: Make) -> None:
    """±inf and numbers far outside the range seen have the same, finite embedding."""
    method = ready(make)
    _, _, context, _ = make_sample(method, 8)
    largest = torch.finfo(torch.float32).max
    for sign in (1.0, -1.0):
        far = [outputs(method, torch.full((8, method.num_features), sign * x), context) for x in (torch.inf, largest)]
        ensure_finite(far[0], f"the embedding of {sign * torch.inf}")
        ensure_same(far[0], far[1], f"the embeddings of {sign * torch.inf} and {sign * largest}")
        beyond = outputs(method, torch.full((8, method.num_features), sign * 1e30), context)
        ensure_close(beyond, far[0], f"the embeddings of {sign * 1e30} and {sign * torch.inf}")


def check_infinite_values_are_not_observed(make: Make) -> None:
    """Rows with ±inf do not change the statistics."""
    method, other = started(make), started(make)
    values = make_sample(method, missing=False).values
    method.observe(torch.cat([values, torch.full_like(values, torch.inf), torch.full_like(values, -torch.inf)]))
    other.observe(values)
    ensure_close(outputs(method.eval(), values), outputs(other.eval(), values), "statistics with and without ±inf")


def check_extreme_columns(make: Make) -> None:
    """Columns that are constant, missing, huge, tiny or of two values can be observed and embedded."""
    largest = torch.finfo(torch.float32).max
    for name, pattern in {
        "constant": [7.0, 7.0],
        "zero": [0.0, 0.0],
        "missing": [torch.nan, torch.nan],
        "infinite": [torch.inf, -torch.inf],
        "of the largest numbers": [-largest, largest],
        "of the smallest numbers": [1e-45, 1e-38],
        "of two values": [0.0, 1.0],
    }.items():
        method = new(make)
        sample = make_sample(method, 64)
        sample.values[:, 0] = torch.tensor(pattern).repeat(32)
        method.fit(sample.values, sample.labels)
        ensure_finite(outputs(method.train(), sample.values, sample.context), f"in training, a column {name}")
        probes = make_sample(method, 64, seed=1).values
        probes[:, 0] = torch.cat([sample.values[:32, 0], torch.tensor([-1e30, -1.0, 0.0, 7.0, 1e30]).repeat(7)[:32]])
        ensure_finite(outputs(method.eval(), probes, sample.context), f"in evaluation, a column {name}")


def check_few_rows(make: Make) -> None:
    """A single row can be observed. An empty batch has an empty output and changes nothing."""
    method = new(make)
    sample = make_sample(method, 1, missing=False)
    method.fit(sample.values, sample.labels)
    ensure_finite(outputs(method.train(), sample.values, sample.context), "the embedding of a single row")
    before = state_of(method)
    for mode in (True, False):
        result = method.train(mode)(sample.values[:0], sample.context[:0])
        expected = (0, method.num_outputs, method.dim)
        ensure(result.shape == expected, f"no rows must give shape {expected}, got {tuple(result.shape)}")
        method(sample.values[:0], Context(sample.context, torch.empty(0, dtype=torch.int64)))
        method.outputs(sample.values[:0])
    method.observe(sample.values[:0])
    ensure_same_state(state_of(method), before, "the state after no rows")


def check_unprepared(make: Make) -> None:
    """Before `fit` an offline method raises; a streaming one that has seen nothing returns finite numbers."""
    method = new(make).eval()
    values, _, context, _ = make_sample(method, 8)
    if not method.offline:
        ensure_finite(outputs(method, values, context), "the embedding before anything was observed")
        return
    found = error_of(lambda: method(values, context), NotFittedError, what="an offline method before fit")
    ensure("fit" in found, f"the error must name fit, got {found}")


def check_wrong_input(make: Make) -> None:
    """Values of a wrong shape or dtype are an error that shows it, in every call that takes values."""
    method = ready(make)
    columns = method.num_features
    wrong: list[tuple[Tensor, type[Exception], str]] = [
        (torch.zeros(columns), ValueError, f"({columns},)"),
        (torch.zeros(3, columns + 1), ValueError, f"(3, {columns + 1})"),
        (torch.zeros(3, columns, 1), ValueError, f"(3, {columns}, 1)"),
        (torch.zeros(3, columns, dtype=torch.int64), TypeError, "torch.int64"),
        (torch.zeros(3, columns, dtype=torch.bool), TypeError, "torch.bool"),
    ]
    for values, kind, shown in wrong:
        for call in (FlatOutputs(method), method.observe, method.fit):
            found = error_of(partial(call, values), kind, what=f"values that are {shown}")
            ensure(found.startswith("values must") and shown in found, f"the error must show {shown}: {found}")


def check_input_is_unchanged(make: Make) -> None:
    """Values and context are never written to."""
    method = started(make)
    sample = make_sample(method)
    values, vectors = sample.values.clone(), sample.shared.vectors.clone()
    for mode in (True, False):
        outputs(method.train(mode), sample.values, sample.shared)
        method.fit(sample.values, sample.labels)
        ensure_same(sample.values, values, "values before and after")
        ensure_same(sample.shared.vectors, vectors, "context vectors before and after")


def check_continuity(make: Make) -> None:
    """A registered method is continuous if and only if its entry says so.

    Bisection between the ends of a feature's range continues with the half in which the embedding changes most. It ends
    at a jump if there is one; otherwise nothing is left of the change. All values are distinct, since at ties even a
    continuous method follows the CDF, which jumps there.
    """
    method = new(make)
    sample = make_sample(method, missing=False)
    sample.values.copy_(sample.values.sort(0).values + torch.linspace(0.0, 1.0, 200).unsqueeze(1))
    method.fit(sample.values, sample.labels).eval().double()
    left, whole = 0.0, 0.0
    for feature in range(method.num_features):
        change = _change_left(method, sample.values.double(), feature)
        whole, left = whole + change[0], left + change[1]
    ensure(whole > 0, "the embedding must not be the same everywhere")
    entry = METHODS.entry_of(method)
    if entry is None:
        return
    if entry.continuous:
        ensure(left < 1e-3 * whole, f"the embedding must be continuous, got a jump of {left} in {whole}")
    else:
        ensure(left > 1e-3 * whole, "the embedding must jump somewhere, as it is not registered as continuous")


def _change_left(method: NumericalEmbedding, seen: Tensor, feature: int) -> tuple[float, float]:
    """The change of the embedding between the ends of the feature's range, and across the last bisection."""
    ends = seen.median(0).values.repeat(2, 1)
    ends[:, feature] = torch.stack([seen[:, feature].min(), seen[:, feature].max()])
    low, high = ends
    whole = float((outputs(method, high.unsqueeze(0)) - outputs(method, low.unsqueeze(0))).abs().max())
    for _ in range(100):
        middle = low.lerp(high, 0.5)
        if not low[feature] < middle[feature] < high[feature]:
            break
        first, second, third = outputs(method, torch.stack([low, middle, high]))
        if (second - first).abs().max() >= (third - second).abs().max():
            high = middle
        else:
            low = middle
    last = outputs(method, torch.stack([low, high]))
    return whole, float((last[1] - last[0]).abs().max())
