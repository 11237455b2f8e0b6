"""The gradients of a whole model without autograd, by compiled loops and matrix products."""

import ctypes
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from daes import native
from daes.native import threads
from daes.native.crosses import cross_backward
from daes.native.evidence import Counts, Found
from daes.native.products import put_product, put_weight_gradient, quicker
from daes.native.projection import Projection
from daes.native.threads import map_parts, submit, wait
from daes.native.whole import LEARNED, Buffers, Share, Whole

_PROJECTED_ROWS = 256
"""From this many rows on, vectors that rows share are multiplied once, if there are few of them."""


class _Gradients(ctypes.Structure):
    """`gradients` of `kernels/whole.h`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("table", "linear", "missing", "first_order", "evidence", "recent")),
        ("rows", ctypes.c_void_p),
        ("distinct", ctypes.c_void_p),
    )


class Gradients(Whole):
    """Logits of a model in training and the gradients of a loss, in memory that is reused for the next batch.

    Layers and learned values are parameters: `backward` writes their gradients.
    """

    _learns = True

    def __init__(
        self, layers: Sequence[Tensor], values: Mapping[str, Any], counts: Counts, crosses: Sequence[Tensor] = ()
    ) -> None:
        super().__init__(layers, values, counts, crosses)
        self._tensors = [one for one in (*layers, *crosses, *values.values()) if isinstance(one, Tensor)]
        self._known = [one.data_ptr() for one in self._tensors]
        self._table: Tensor = values["rows"]
        learned = {name: values[name] for name in LEARNED if name != "rows" and values[name] is not None}
        self._gradients = {name: torch.empty_like(one).detach() for name, one in learned.items()}
        self._by_layer = [torch.empty_like(one).detach() for one in layers]
        self._parameters = [*learned.values(), *layers, *crosses]
        self._by_odds = self._gradients.get("combined")
        self._recent: Tensor | None = values["recent"]
        self._correcting = False
        self._projection: Projection | None = None
        self._projects = False
        sizes, offsets = values["sizes"], values["offsets"]
        self._follows = torch.equal(offsets[1:], offsets[:-1] + sizes[:-1] + 2)  # tables of fields, each other
        self._buffers = Buffers(self._values, self._widths, counts, 0, crosses=bool(crosses))

    @property
    def found(self) -> Found:
        """Where the last batch was looked up."""
        return self._buffers.found

    @property
    def is_current(self) -> bool:
        """Whether all tensors are where they were."""
        return [one.data_ptr() for one in self._tensors] == self._known

    def _allocate(self, rows: int) -> None:
        """Memory for a batch of so many rows."""
        self._buffers = Buffers(self._values, self._widths, self.counts, rows, crosses=bool(self._crosses))
        self._shares = self._buffers.shares(0, *([rows // 2] if rows >= threads.MANY_ROWS else []), rows)
        fields = (self._values["q"] + self._values["p"]) * self._values["d"]
        projects = rows >= _PROJECTED_ROWS and len(self._widths) > 2 and self._follows and not self._crosses
        projects &= self.found.rows.numel() < 2**31  # rows are sorted by numbers of 32 bits
        self._projection = Projection(self._values, self._widths, self.counts, rows) if projects else None
        self._to_fields = torch.empty(rows, fields)
        # Of a cross, a gradient of the fields is not known without that of the plain inputs.
        below = torch.empty(rows, self._widths[0]) if self._crosses else self._to_fields
        self._down = [below, *map(torch.empty_like, self._buffers.hidden[1:])]
        if self._projection is not None:
            self._down[1] = self._projection.rows[:, : self._widths[1]]
        self._turned = [*(one.t() for one in self._down[1:]), self._buffers.hidden[-1].t()]
        self._downward = [self._weights[0][:, : below.shape[1]], *self._weights[2:-2:2]]  # plain inputs are last
        places = self.found.rows.numel()
        self._distinct = torch.empty(places, dtype=torch.int64)
        self._sums = torch.empty(places, self._values["d"])
        self._to = _Gradients(
            rows=self._sums.data_ptr(),
            distinct=self._distinct.data_ptr(),
            **{name: one.data_ptr() for name, one in self._gradients.items() if name != "combined"},
        )
        dense = (*self._gradients.values(), *self._by_layer)
        count = 1 + len(dense) + len(self._crosses)
        self._all = (ctypes.c_void_p * count)(*[one.data_ptr() for one in (self._sums, *dense)])
        self._sizes = (ctypes.c_int64 * count)(0, *[one.numel() for one in (*dense, *self._crosses)])

    def forward(self, numbers: Tensor, ids: Tensor, *, correcting: bool) -> Tensor:
        """Logits (B,) of numbers (B, q) and ids (B, p), if correcting with what the errors of the last rows say."""
        if len(self.found.rows) != len(ids):
            self._allocate(len(ids))
        self._correcting = correcting and self._recent is not None
        self._model.recent = self._recent.data_ptr() if correcting and self._recent is not None else None
        self._find(numbers, ids, len(ids), self._buffers, distinct=True)
        known = self._projection
        self._projects = known is not None and known.holds(self._address, self._buffers.address, self.found.ids)
        if known is not None and self._projects:
            map_parts(len(ids), self._project, known.halves(0, 1) if len(self._shares) > 1 else [known.fields])
        forward = self._gather if self._projects else self._forward
        map_parts(len(ids), forward, [(numbers, share) for share in self._shares])
        return self._buffers.logits.clone()

    def _project(self, start: int, stop: int) -> None:
        """Project the vectors of some fields."""
        known = self._projection
        assert known is not None
        native._library.daes_project(self._address, self._buffers.address, known.address, start, stop)

    def _gather(self, numbers: Tensor, share: "Share") -> None:
        """The logits of a share of a batch whose vectors are projected."""
        known = self._projection
        assert known is not None
        scratch, hidden = known.scratch[int(share.start > 0)], self._buffers.hidden[1]
        native._library.daes_gather(
            self._address, share.space, known.address, numbers, share.start, share.stop, scratch, hidden
        )
        self._ascend(share, 1)

    def _scatter(self, start: int, stop: int) -> None:
        """The gradients of some fields and of their weights in the first layer."""
        known = self._projection
        assert known is not None
        spaces = self._address, self._buffers.address, known.address, ctypes.addressof(self._to)
        scratch, rows = known.scratch[int(start > 0)], len(self.found.rows)
        native._library.daes_scatter(*spaces, rows, start, stop, scratch, self._by_layer[0])

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of all parameters, given that of the logits of the last batch, (B,)."""
        hidden, down, found, rows = self._buffers.hidden, self._down, self._by_layer, gradient.shape[0]
        torch.mv(self._turned[-1], gradient, out=found[-2][0, len(self._crossed_readout) :])
        torch.sum(gradient, 0, keepdim=True, out=found[-1])
        if self._by_odds is not None:
            torch.mv(self._buffers.odds.t(), gradient, out=self._by_odds)
        torch.mul(gradient.unsqueeze(1), self._readout, out=down[-1])
        waiting = []
        for place in reversed(range(len(hidden) - 1)):
            here, outputs = down[place + 1], hidden[place + 1]
            native._library.daes_relu_backward(
                here, here.stride(0), outputs, *outputs.shape, self._slope, found[2 * place + 1]
            )
            if place or not (self._projects or quicker(here, hidden[0].shape[1])):
                waiting.append(submit(rows, torch.mm, self._turned[place], hidden[place], out=found[2 * place]))
                torch.mm(here, self._downward[place], out=down[place])
            elif not self._projects:
                waiting.append(submit(rows, put_weight_gradient, found[0], here, hidden[0]))
                put_product(down[0], here, self._upward[0])
        of_crosses = self._cross_backward(gradient) if self._crosses else []
        if self._projects and self._projection is not None:
            if self._recent is not None:
                self._gradients["recent"].zero_()
            self._projection.put_around(gradient, self._buffers.sums)
            parts = self._projection.halves(1, 8) if len(self._shares) > 1 else [self._projection.fields]
            map_parts(rows, self._scatter, parts)
            count = self.found.ids
        else:
            count = native._library.daes_gradients(
                self._address, self._buffers.address, ctypes.addressof(self._to), gradient, self._to_fields, rows
            )
        self._sizes[0] = count * self._sums.shape[1]
        wait(waiting)
        for parameter, own in zip(self._parameters, (*self._gradients.values(), *found, *of_crosses), strict=True):
            parameter.grad = own
        if self._recent is not None and not self._correcting:
            self._recent.grad = None
        self._table.grad = torch.sparse_coo_tensor(
            self._distinct[:count].unsqueeze(0),
            self._sums[:count],
            self._table.shape,
            is_coalesced=True,
            check_invariants=False,
        )

    def _cross_backward(self, gradient: Tensor) -> list[Tensor]:
        """Write the gradient of the fields, given that of the logits and what the hidden layers made of it."""
        every = [(share, gradient[share.start : share.stop]) for share in self._shares]
        found: list[Tensor]
        (found, to_readout), *others = map_parts(len(gradient), self._cross_backward_of, every)
        for other, more in others:
            torch._foreach_add_([*found, to_readout], [*other, more])
        self._by_layer[-2][0, : len(to_readout)] = to_readout
        for place, one in enumerate(found, len(self._all) - len(found)):
            self._all[place] = one.data_ptr()
        return found

    @torch.no_grad()
    def _cross_backward_of(self, share: "Share", gradient: Tensor) -> tuple[list[Tensor], Tensor]:
        """The same of a share of the rows; the gradients of the crosses and of what is read of them."""
        found: list[Any] = [None] * len(self._crosses)
        below, to_fields = (one[share.start : share.stop] for one in (self._down[0], self._to_fields))
        to_readout = torch.zeros_like(self._crossed_readout)
        for rows, kept in share.crossed:
            own = gradient[rows]
            to_readout += kept[-1].t().mv(own)
            up = own.unsqueeze(1) * self._crossed_readout
            parts = cross_backward(share.hidden[0][rows], kept, self._crosses, up, below[rows], found)
            torch.add(*(one[:, : to_fields.shape[1]] for one in parts), out=to_fields[rows])
        share.crossed.clear()
        return found, to_readout

    def norm(self) -> float:
        """The Euclidean norm of all gradients, as they are."""
        squares: float = native._library.daes_squares(self._all, self._sizes, len(self._sizes))
        return sqrt(squares)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a model has its own
