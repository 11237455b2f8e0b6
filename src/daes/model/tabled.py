"""A model as tables: the same logits in few operations, for an exported file.

For a few rows a runtime takes about as long as a graph has operations. A model in eval mode is a network on top of
functions of one value each, which can be computed beforehand: those of a number are `NumberTables`, those of an id a
row of a table. A row has a vector e, plain inputs, evidence, and the part a that the value adds to the logit by itself.
With the weight s of the products of pairs, all rows side by side y, and the cells z of combinations,

    a = ⟨w, e⟩ + ⟨w', evidence⟩ − s/2·‖e‖²,   logit = base + Σ a + s/2·‖Σ e‖² + MLP(y) + ⟨w'', z⟩
"""

from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, leaky_relu, linear, pad

from daes.backbone import Backbone
from daes.backbone.layers import unchanged
from daes.embedding import DAES, CategoricalEmbedding, NumericalEmbedding
from daes.embedding.efd import EFD
from daes.embedding.interpolation import value_at
from daes.embedding.knots import FARTHEST_DEVIATION
from daes.embedding.pieces import LARGEST, NumberTables
from daes.embedding.vocabulary import FIRST
from daes.evidence import EvidenceInputs
from daes.native.network import Network

_SCORE_STEP = 0.02
"""A number is cut where its normal score is a multiple of this; in between a parabola is off by 1e-6 at most."""
_MOST_CUTS = 150_000
"""With more cuts than this, of all numbers, no tables are made: each takes a row of 250 bytes."""


def tabled(model: Any) -> "TabledModel | None":
    """A `CTRModel` in eval mode as tables; None if it has a part whose formula is not known here."""
    numbers, table = model.numerical, model.categorical
    network = model.backbone.network() if isinstance(model.backbone, Backbone) else None
    if network is None or network.crosses:
        return None
    if not (table is None or unchanged(table, CategoricalEmbedding)) or not unchanged(model.evidence, EvidenceInputs):
        return None
    if not (numbers is None or _is_known(numbers)) or model.device.type != "cpu":
        return None
    if any(one.dtype != torch.float32 for one in model.parameters()):
        return None
    with torch.no_grad():
        rows = _Rows(model, network)
        cuts = None if numbers is None else _cuts(numbers, rows.plain, model.evidence.edges)
        return None if cuts is not None and cuts.numel() > _MOST_CUTS else TabledModel(model, network, rows, cuts)


def _is_known(numbers: NumericalEmbedding) -> bool:
    """Whether `_cuts` knows where the outputs change."""
    known = numbers.distributions
    kind = unchanged(numbers, EFD) or (unchanged(numbers, DAES) and not numbers.uses_context)
    return kind and (known is None or known.knots.dtype == torch.float32)


class TabledModel(nn.Module):
    """The logits (B,) of a model, from the inputs of the model.

    Args:
        model: the model, in eval mode.
        network: that of its backbone.
        rows: the rows of its fields.
        cuts: those of its numbers, (q, N).
    """

    ids: Tensor
    values: Tensor
    hashes: Tensor
    cells: Tensor

    def __init__(self, model: Any, network: Network, rows: "_Rows", cuts: Tensor | None) -> None:
        super().__init__()
        evidence, table = model.evidence, model.categorical
        odds, *of_ids = evidence.tables()
        first, *layers, readout, bias = (one.detach() for one in network.layers)
        self.slope = network.slope
        self.layers = nn.ParameterList([rows.of_layer(first), *layers])
        self.categorical: CategoricalEmbedding | None = table
        self.numbers: NumberTables | None = None
        if model.numerical is not None and cuts is not None:
            self.numbers = NumberTables(cuts, _functions(model.numerical, evidence, odds, rows))
        if table is not None:
            fields = torch.arange(table.num_fields).repeat_interleave(torch.tensor(table.sizes) + FIRST)
            counted = [one.float().unsqueeze(1) for one in of_ids[:2] if len(one)]
            known = rows.complete(torch.cat([table.weight, *counted], 1), fields + model.schema.num_numerical)
            self.register_buffer("ids", known)
        self.combines = evidence.combinations is not None
        weights = self._combine(evidence, of_ids[2]) if self.combines else torch.zeros(0)
        self.readout = nn.Parameter(torch.cat([weights, readout[0], rows.of_squares, rows.of_sums]).unsqueeze(0))
        self.bias = nn.Parameter(bias + evidence.base())
        for one in (self.layers, self.readout, self.bias):  # the table of categories is the model's own
            one.requires_grad_(False)

    def _combine(self, evidence: EvidenceInputs, cells: Tensor) -> Tensor:
        """Make the tables of combinations; the weights of their cells in the logit, (K,)."""
        found, counted = evidence.combinations, len(evidence.edges)
        assert found is not None
        if counted and self.numbers is not None:
            # The value of a number in a combination, in every row of its table.
            self.register_buffer("values", self.numbers.tabulate(lambda at: evidence.coarse_bins(at).unsqueeze(-1)))
        ids = evidence.dim - counted
        self._counted = counted > 0, ids > 0
        # Products of whole numbers are slow, and those in double precision are exact up to 2^53.
        self.register_buffer("hashes", found.matrix(counted + ids // 2).double())
        self.register_buffer("cells", cells.float().view(len(found.weight), -1).T.contiguous())
        return found.weight.detach()

    def forward(self, numerical: Tensor | None = None, categorical: Tensor | None = None) -> Tensor:
        fields, values = [], []
        if self.numbers is not None:
            assert numerical is not None
            places = self.numbers.find(numerical)
            fields.append(self.numbers(numerical, places))
            if self.combines and self._counted[0]:
                values.append(embedding(places, self.values).squeeze(-1))
        if self.categorical is not None:
            assert categorical is not None
            rows = self.categorical.rows(categorical)
            fields.append(embedding(rows, self.ids))
            if self.combines and self._counted[1]:
                values.append(rows)
        known = torch.cat(fields, 1)
        sums, hidden = known.sum(1), known.flatten(1)
        for weight, bias in zip(self.layers[::2], self.layers[1::2], strict=True):
            hidden = leaky_relu(linear(hidden, weight, bias), self.slope)
        # A runtime may add one after the other: the many small numbers come first, so that they are not rounded away.
        found = [hidden, sums * sums, sums]
        if self.combines:
            cells = (torch.cat(values, 1).double() @ self.hashes).long() % len(self.cells)
            found.insert(0, self.cells.gather(0, cells))
        return linear(torch.cat(found, 1), self.readout, self.bias).squeeze(1)


class _Rows:
    """A row for every field: those inputs of the network that depend on the field alone, and its part of the logit.

    `places` (fields, columns − 1) are the places of a row's columns among the inputs of the network, −1 for none.
    `plain` are the plain inputs of numbers. `of_sums` and `of_squares` (columns,) are the weights, in the logit, of the
    columns' sums over the fields and of their squares.
    """

    of_sums: Tensor
    of_squares: Tensor

    def __init__(self, model: Any, network: Network) -> None:
        q, p, self.dim = model.schema.num_numerical, model.schema.num_categorical, model.dim
        evidence, numbers = model.evidence, model.numerical
        reads_plain = numbers is not None and getattr(model.backbone, "plain_dim", 0) > evidence.dim
        self.plain = numbers.plain if numbers is not None and reads_plain else ()
        vectors = torch.arange((q + p) * self.dim).view(q + p, self.dim)
        plain = torch.arange(len(self.plain) * q).view(len(self.plain), q).T + vectors.numel()
        start, counted = vectors.numel() + plain.numel(), len(evidence.edges)
        odds = torch.arange(counted).view(q, counted // max(q, 1)) + start
        of_ids = torch.arange(evidence.dim - counted).view(2 * (evidence.dim > counted), p).T + start + counted
        of_numbers = torch.cat([plain, odds], 1)
        width = max(of_numbers.shape[1], of_ids.shape[1])
        others = [pad(one, (0, width - one.shape[1]), value=-1) for one in (of_numbers, of_ids)]
        self.places = torch.cat([vectors, torch.cat(others)], 1)
        weights = torch.zeros(start + evidence.dim + 1)  # of all inputs in the logit, and of no input
        self._half_pairs = 0.0
        if network.linear is not None:
            weights[: vectors.numel()] = network.linear.flatten()
            self._half_pairs = network.pairs / 2
        if evidence.weight is not None:
            weights[start:-1] = evidence.weight
        self._weights = weights[self.places]
        self.of_sums = pad(torch.ones(1), (self.dim + width, 0))
        self.of_squares = pad(torch.full((self.dim,), self._half_pairs), (0, width + 1))

    def of_layer(self, weight: Tensor) -> Tensor:
        """The weight (m, inputs) of the first layer, for rows side by side."""
        return pad(weight, (0, 1))[:, pad(self.places, (0, 1), value=-1)].flatten(1)

    def complete(self, known: Tensor, fields: Tensor) -> Tensor:
        """The rows of these fields, given their first columns."""
        known = pad(known, (0, self.places.shape[1] - known.shape[-1]))
        own = (known * self._weights[fields].to(known.dtype)).sum(-1, keepdim=True)
        squares = known[..., : self.dim].square().sum(-1, keepdim=True)
        return torch.cat([known, own - self._half_pairs * squares], -1)


def _functions(
    numbers: NumericalEmbedding, evidence: EvidenceInputs, odds: Tensor, rows: _Rows
) -> Callable[[Tensor], Tensor]:
    """The function from values (n, q) in double precision to the rows of their fields, (n, q, columns).

    Args:
        odds: the log odds of each bin, (q, bins + 1), if they are counted.
    """
    exact, fields = deepcopy(numbers).double().eval(), torch.arange(numbers.num_features)

    def functions(values: Tensor) -> Tensor:
        vectors, plain = exact.outputs(values)
        found = [vectors]
        if rows.plain:
            assert plain is not None
            found.append(plain.view(len(plain), len(rows.plain), -1).transpose(1, 2))
        if len(odds):
            found.append(odds.gather(1, evidence.bins(values).T).T.unsqueeze(-1))
        return rows.complete(torch.cat(found, -1), fields)

    return functions


def _cuts(numbers: NumericalEmbedding, plain: Collection[str], edges: Tensor) -> Tensor:
    """Where vectors, plain inputs and bins, between edges (q, E), change other than by a line or a parabola, (q, N)."""
    found, known = [], numbers.distributions
    inputs = {*plain, getattr(numbers, "linear", None)}
    if len(edges):
        found.append(_just_above(edges))
    if isinstance(numbers, EFD):
        found.append(_just_above(numbers.edges))
    if known is not None:
        count, knots = known.num_knots, known.knots
        if isinstance(numbers, DAES):
            knots = numbers.place_knots()
            found.append(value_at(torch.linspace(0, count, numbers.num_meta + 1, dtype=torch.float64), knots))
        found.append(knots)
        if "value" in inputs:
            ends = torch.tensor([[-FARTHEST_DEVIATION, FARTHEST_DEVIATION]], dtype=torch.float64)
            farthest = known.centre.unsqueeze(1) + known.scale.unsqueeze(1) * ends
            found.append(farthest.clamp(-LARGEST, LARGEST))
        if "score" in inputs:
            lowest = torch.special.ndtri(torch.tensor(0.5 / count, dtype=torch.float64)).item()
            scores = torch.linspace(lowest, -lowest, round(-2 * lowest / _SCORE_STEP) + 2, dtype=torch.float64)
            found.append(value_at(torch.special.ndtr(scores) * count, knots))
    return torch.cat([_round_up(one) for one in found], 1)


def _round_up(cuts: Tensor) -> Tensor:
    """In single precision, such that no number lies between a cut and the result."""
    rounded = cuts.float()
    return torch.where(rounded.double() < cuts.double(), _just_above(rounded), rounded)


def _just_above(edges: Tensor) -> Tensor:
    """The first value of the bin above each edge, as bins are closed on the right."""
    return torch.nextafter(edges, torch.tensor(torch.inf))
