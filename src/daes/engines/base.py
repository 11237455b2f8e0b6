"""The interface of engines: work on parts and merge the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

from daes.choices import check_choice

P = TypeVar("P")
T = TypeVar("T")


class EngineError(RuntimeError):
    """Work on a part has failed in a process of an engine."""


class Engine(Protocol):
    """Runs work in other processes. Work, parts and results are pickled: functions must be importable there."""

    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        """The results of `work` on every part, merged; `merge` may change its first argument.

        The parts, at least one, may be worked on in any order, and again if a process is lost. Results are merged in
        pairs of neighbours, then pairs of these, and so on, in the order of the parts, so that every engine gives the
        same result. An `EngineError` says what has failed.
        """


class LocalEngine:
    """Does the work in this process.

    >>> LocalEngine().map_merge(len, ["one", "three"], lambda first, second: first + second)
    8
    """

    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        results = [work(part) for part in parts]
        while len(results) > 1:
            results = [reduce(merge, results[start : start + 2]) for start in range(0, len(results), 2)]
        return results[0]


@dataclass(frozen=True)
class Failure:
    """An error about a part, returned as a result so that it is not lost in an engine's traceback."""

    sentence: str


def attempt(work: Callable[[Any], Any], part: Any) -> Any:
    """The result of work on a part, or a `Failure` for an error about data or files."""
    try:
        return work(part)
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        return Failure(f"{type(error).__name__}: {error}" if isinstance(error, MemoryError) else str(error))


def merge_good(merge: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    """Two results merged, or a `Failure` if one of them is one."""
    failure = next((result for result in (first, second) if isinstance(result, Failure)), None)
    return failure or merge(first, second)


def result_of(result: Any) -> Any:
    """The result; raises an `EngineError` if it is a `Failure`."""
    if isinstance(result, Failure):
        raise EngineError(result.sentence)
    return result


def start_engine(name: str) -> Engine:
    """An engine by its name: "local" (this process), "ray" or "spark". The latter two are extras of daes.

    >>> type(start_engine("local")).__name__
    'LocalEngine'
    """
    check_choice("engine", name, ("local", "ray", "spark"))
    if name == "ray":
        from daes.engines.ray import RayEngine

        return RayEngine()
    if name == "spark":
        from daes.engines.spark import SparkEngine

        return SparkEngine()
    return LocalEngine()
