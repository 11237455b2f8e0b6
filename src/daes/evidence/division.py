"""Which rows each of several processes takes, and how they count them together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor


def part_of(start: int, stop: int, rank: int, count: int) -> tuple[int, int]:
    """The part of the rows from `start` to `stop` that process `rank` of `count` takes; all have about the same size.

    >>> [part_of(100, 110, rank, 3) for rank in range(3)]
    [(100, 103), (103, 106), (106, 110)]
    """
    rows = stop - start
    return start + rows * rank // count, start + rows * (rank + 1) // count


@dataclass(frozen=True)
class Division:
    """The part of one process in what several count together, in memory that they share.

    Args:
        rank: of the process.
        count: of processes.
        columns: (r, n): of columns and combinations it counts r, r + n, …; none if r is n.
        meet: waits until all processes have called it.
        buffer: a vector of so many numbers of the kind of a tensor for what is gathered next, which is then not copied.
        gather: the rows of all processes, of which each has as many as the second argument says.

    >>> second = Division(1, 3, (0, 2), print, lambda *_: Tensor(), lambda *_: [])
    >>> second.part_of(10), second.sizes(10)
    ((3, 6), [3, 3, 4])
    """

    rank: int
    count: int
    columns: tuple[int, int]
    meet: Callable[[], None]
    buffer: Callable[[int, Tensor], Tensor]
    gather: Callable[[Tensor, Sequence[int]], Sequence[Tensor]]

    def part_of(self, rows: int) -> tuple[int, int]:
        """Which of so many rows this process looks up: from the first number to before the second."""
        return part_of(0, rows, self.rank, self.count)

    def sizes(self, rows: int) -> list[int]:
        """How many of so many rows each process looks up."""
        parts = (part_of(0, rows, rank, self.count) for rank in range(self.count))
        return [stop - start for start, stop in parts]
