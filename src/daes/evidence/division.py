"""How several processes count rows together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor


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
        return rows * self.rank // self.count, rows * (self.rank + 1) // self.count

    def sizes(self, rows: int) -> list[int]:
        """How many of so many rows each process looks up."""
        return [rows * (rank + 1) // self.count - rows * rank // self.count for rank in range(self.count)]
