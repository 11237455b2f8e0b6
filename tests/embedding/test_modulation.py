"""Modulation against the formulas in loops, and what it allocates."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from daes.embedding import Context
from daes.embedding.modulation import gate, pool_context, tran

ROWS, FEATURES, BINS, WIDTH = 12, 2, 3, 4


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def gate_by_definition(v: Tensor, e: Tensor, w: Tensor, beta: float) -> Tensor:
    result = torch.empty_like(v)
    for b, q, i in np.ndindex(*v.shape):
        logit = sum(float(w[q, i, c] * e[b, c]) for c in range(e.shape[1]))
        result[b, q, i] = beta * float(v[b, q, i]) * sigmoid(logit) + (1 - beta) * float(v[b, q, i])
    return result


def tran_by_definition(v: Tensor, e: Tensor, w: Tensor, beta: float) -> Tensor:
    result = torch.empty_like(v)
    for b, q, i in np.ndindex(*v.shape):
        matrix_row = [sum(float(w[q, i, j, c] * e[b, c]) for c in range(e.shape[1])) for j in range(v.shape[2])]
        product = sum(entry * float(v[b, q, j]) for j, entry in enumerate(matrix_row))
        result[b, q, i] = beta * sigmoid(product) + (1 - beta) * float(v[b, q, i])
    return result


FORMULAS = {"gate": (gate, gate_by_definition), "tran": (tran, tran_by_definition)}


def inputs(name: str, contexts: int, rows: int = ROWS) -> tuple[Tensor, Context, Tensor]:
    generator = torch.Generator().manual_seed(contexts)
    weights = torch.rand(rows, FEATURES, BINS, generator=generator, dtype=torch.float64)
    vectors = torch.randn(contexts, WIDTH, generator=generator, dtype=torch.float64)
    index = torch.randint(contexts, (rows,), generator=generator)
    shape = (FEATURES, BINS, WIDTH) if name == "gate" else (FEATURES, BINS, BINS, WIDTH)
    return weights, Context(vectors, index), torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("contexts", [1, 3, 12])  # shared by many rows, by some, hardly
@pytest.mark.parametrize("name", FORMULAS)
def test_equals_the_formula_whatever_the_form_of_context(name: str, contexts: int, beta: float) -> None:
    formula, by_definition = FORMULAS[name]
    weights, context, projection = inputs(name, contexts)
    expected = by_definition(weights, context.vectors[context.index], projection, beta)
    for form in (context, context.vectors[context.index]):
        torch.testing.assert_close(formula(weights, form, projection, beta), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("contexts", [2, 12])
@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_match_finite_differences(name: str, contexts: int) -> None:
    weights, context, projection = inputs(name, contexts)
    leaves = [tensor.requires_grad_() for tensor in (weights, context.vectors, projection)]

    def shared(v: Tensor, vectors: Tensor, w: Tensor) -> Tensor:
        return FORMULAS[name][0](v, Context(vectors, context.index), w, 0.4)

    def by_row(v: Tensor, vectors: Tensor, w: Tensor) -> Tensor:
        return FORMULAS[name][0](v, vectors[context.index], w, 0.4)

    assert torch.autograd.gradcheck(shared, tuple(leaves))
    assert torch.autograd.gradcheck(by_row, tuple(leaves))


@pytest.mark.parametrize("name", FORMULAS)
def test_contexts_that_no_row_has_change_nothing(name: str) -> None:
    weights, context, projection = inputs(name, 3)
    more = Context(torch.cat([context.vectors, torch.full((2, WIDTH), 99.0, dtype=torch.float64)]), context.index)
    formula = FORMULAS[name][0]
    torch.testing.assert_close(formula(weights, more, projection, 0.5), formula(weights, context, projection, 0.5))


@pytest.mark.parametrize("form", ["rows", "shared", "hardly shared"])
@pytest.mark.parametrize("name", FORMULAS)
def test_no_matrix_a_sample_is_ever_held(name: str, form: str, largest_tensor) -> None:
    rows, features, bins, width = 2000, 3, 10, 16
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(rows, features, bins, generator=generator)
    contexts = 1500 if form == "hardly shared" else 20
    vectors = torch.randn(contexts, width, generator=generator).requires_grad_()
    context = Context(vectors, torch.randint(contexts, (rows,), generator=generator))
    shape = (features, bins, width) if name == "gate" else (features, bins, bins, width)
    projection = torch.randn(*shape, generator=generator).requires_grad_()
    saved = []
    with (
        largest_tensor() as largest,
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t),
    ):
        given = vectors[context.index] if form == "rows" else context
        FORMULAS[name][0](weights, given, projection, 0.5).sum().backward()
    assert largest.numel <= rows * features * bins
    kept = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in saved}
    assert sum(kept.values()) < weights.element_size() * rows * features * bins * bins


def test_pooling() -> None:
    vectors = torch.arange(12.0).reshape(2, 3, 2)
    assert pool_context(vectors, "mean").tolist() == [[2.0, 3.0], [8.0, 9.0]]
    assert pool_context(vectors, "sum").tolist() == [[6.0, 9.0], [24.0, 27.0]]
    assert pool_context(vectors, "concat").tolist() == [[0.0, 1, 2, 3, 4, 5], [6.0, 7, 8, 9, 10, 11]]
    with pytest.raises(ValueError, match=r"context_pool must .*got 'max'"):
        pool_context(vectors, "max")
