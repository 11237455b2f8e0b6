"""What every engine can do: work on the parts of something and merge the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, TypeVar

P = TypeVar("P")
T = TypeVar("T")


class EngineError(RuntimeError):
    """The work on a part has failed, in a process of an engine."""


class Engine(Protocol):
    """Runs work elsewhere. Work, parts and results travel by pickle: functions must be importable there."""

    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        """The results of `work` on every part, merged; `merge` may change its first argument.

        The parts, at least one, may be worked on in any order, and again where a process is lost. Results are merged
        in pairs of neighbours, then pairs of these, and so on: two are held at a time, and the order is that of the
        parts, so that every engine gives the same result. An `EngineError` says what has failed.
        """


class LocalEngine:
    """Does the work in this process.

    >>> LocalEngine().map_merge(len, ["one", "three"], lambda first, second: first + second)
    8
    """

    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        results = [work(part) for part in parts]
        while len(results) > 1:
            results = [reduce(merge, results[place : place + 2]) for place in range(0, len(results), 2)]
        return results[0]


@dataclass(frozen=True)
class Failure:
    """What went wrong with a part. It is a result too, so that the engines' own tracebacks do not bury the sentence."""

    sentence: str


@dataclass(frozen=True)
class Attempt:
    """Work whose errors about data and files are results."""

    work: Callable[[object], object]

    def __call__(self, part: object) -> object:
        try:
            return self.work(part)
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            return Failure(f"{type(error).__name__}: {error}" if isinstance(error, MemoryError) else str(error))


@dataclass(frozen=True)
class MergeGood:
    """Merges two results unless one of them is a failure, which is then the result."""

    merge: Callable[[object, object], object]

    def __call__(self, first: object, second: object) -> object:
        for result in (first, second):
            if isinstance(result, Failure):
                return result
        return self.merge(first, second)


def result_of(result: object) -> object:
    """A result, or the error that it stands for."""
    if isinstance(result, Failure):
        raise EngineError(result.sentence)
    return result
