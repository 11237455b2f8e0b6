"""Rows of the simulated stream by number."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daes.simulation.draws import Draws
from daes.simulation.drift import Clock
from daes.simulation.features import FeatureGenerator, Features
from daes.simulation.truth import Truth


class SimulatedRows:
    """Features, click probabilities and clicks of any range of rows.

    Rows are computed in whole blocks at fixed places, the last of which is cached: the arrays of the computation have
    the same length for every range, so that even the rounding is the same.

    Args:
        generator: of features.
        truth: of clicks.
        clock: when a row occurs.
        draws: the random numbers of the rows.
        block: rows in a block.
    """

    def __init__(self, generator: FeatureGenerator, truth: Truth, clock: Clock, draws: Draws, block: int) -> None:
        self.block = block
        self._generator, self._truth, self._clock, self._draws = generator, truth, clock, draws
        self._kept: _Block | None = None

    def features(self, start: int, stop: int) -> Features:
        """Rows start … stop − 1, read-only."""
        return self.read(start, stop, with_probability=False)[0]

    def probability(self, start: int, stop: int) -> NDArray[np.float64]:
        """P(click) of rows start … stop − 1."""
        return np.concatenate([block.probability[rows] for block, rows in self._blocks(start, stop)])

    def read(self, start: int, stop: int, *, with_probability: bool) -> tuple[Features, NDArray[np.float64]]:
        """Features and P(click) in one pass; zeros in place of P(click) where it is not asked for."""
        features, probabilities = [], [np.zeros(0 if with_probability else stop - start)]
        for block, rows in self._blocks(start, stop):
            features.append(block.features[rows])
            if with_probability:
                probabilities.append(block.probability[rows])
        return Features.concat(features), np.concatenate(probabilities)

    def clicks(self, start: int, probability: NDArray[np.float64]) -> NDArray[np.float32]:
        """0 or 1 for each of the rows from start on, given their P(click)."""
        return (self._draws.uniform("click", start, len(probability)) < probability).astype(np.float32)

    def numbers(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """One numerical column, made with no other field than it needs."""
        spans = self._spans(start, stop)
        return np.concatenate([self._draw(number, [name]).numerical[name][rows] for number, rows in spans])

    def candidates(self, start: int, stop: int, count: int) -> list[Features]:
        """The requests of rows start … stop − 1 with `count` ads each, their own first."""
        shown = self.features(start, stop)
        others = (
            self._generator.draw(self._draws, start, shown.time, request=shown, prefix=f"candidate{k}/")
            for k in range(1, count)
        )
        return [shown, *others]

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, slice]]:
        """The number of every block that rows start … stop − 1 lie in, and where in it they lie; one block at least."""
        for number in range(start // self.block, max(start, stop - 1) // self.block + 1):
            first = number * self.block
            yield number, slice(max(start - first, 0), min(stop - first, self.block))

    def _blocks(self, start: int, stop: int) -> Iterator[tuple["_Block", slice]]:
        for number, rows in self._spans(start, stop):
            if self._kept is None or self._kept.number != number:
                self._kept = _Block(number, self._draw(number).freeze(), self._truth)
            yield self._kept, rows

    def _draw(self, number: int, names: list[str] | None = None) -> Features:
        first = number * self.block
        time = self._clock.time(np.arange(first, first + self.block))
        return self._generator.draw(self._draws, first, time, names=names)


class _Block:
    """A block of rows; their probabilities are computed when first asked for."""

    def __init__(self, number: int, features: Features, truth: Truth) -> None:
        self.number, self.features, self._truth = number, features, truth

    @cached_property
    def probability(self) -> NDArray[np.float64]:
        return self._truth.probability(self.features)
