"""KLL and t-digest, on Apache DataSketches (extra `sketches`)."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np

from daes.distribution.base import DistributionEstimator, Floats, State
from daes.distribution.piecewise import cdf_between, quantile_between
from daes.extras import require

# How DataSketches stores a t-digest: versions, k, flags, number of centroids, minimum and maximum; then the centroids.
_HEADER_BYTES = 32
_CENTROID = np.dtype([("mean", "<f8"), ("weight", "<u8")])

# DataSketches multiplies differences of values by weights; values scaled by this power of two cannot overflow there.
# The scaling is exact except for values below 1e-289.
_SCALE = 2.0**-64


class DataSketch(DistributionEstimator):
    """Base class of the estimators on DataSketches.

    The state contains the serialised sketch with its length and CRC-32. Corrupt bytes must not reach the C++ code: its
    KLL reader crashes the process on them, and its t-digest reader accepts most of them.
    """

    _settings: ClassVar[tuple[str, ...]] = ("k",)
    _class: ClassVar[str]
    _least_k: ClassVar[int]

    def __init__(self, k: int = 200) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not self._least_k <= k <= 65535:
            raise ValueError(f"k must be an integer from {self._least_k} to 65535, got {k!r}")
        self.k = int(k)
        self._sketch: Any = getattr(require("datasketches"), self._class)(self.k)

    def __reduce__(self) -> tuple[Any, ...]:
        # The C++ object cannot be copied or sent to another process; its state can.
        return _restore, (type(self), self.k, self.state_dict())

    def _absorb(self, values: Floats) -> None:
        # DataSketches rejects read-only arrays, such as those from Arrow.
        self._sketch.update(np.require(values, requirements=["C", "A", "W"]))

    def _merge(self, other: Self) -> None:
        self._sketch.merge(other._sketch)

    def _state(self) -> State:
        data = self._sketch.serialize()
        return {
            "sketch": np.frombuffer(data, dtype=np.uint8).copy(),
            "sketch_length": len(data),
            "sketch_crc32": crc32(data),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        stored = np.asarray(state["sketch"])
        if stored.dtype != np.uint8 or stored.ndim != 1:
            raise ValueError(
                f"state's sketch must be a 1-D array of uint8, got dtype {stored.dtype}, shape {stored.shape}"
            )
        data = stored.tobytes()
        if len(data) != state["sketch_length"]:
            raise ValueError(f"state's sketch is truncated: {len(data)} bytes of {state['sketch_length']}")
        if crc32(data) != state["sketch_crc32"]:
            raise ValueError("state's sketch is corrupt: its CRC-32 does not match")
        sketch = type(self._sketch).deserialize(data)
        if (sketch.k, self._seen(sketch)) != (self.k, state["count"]):
            raise ValueError(
                f"state's sketch must have k={self.k} and count={state['count']}, "
                f"got k={sketch.k} and count={self._seen(sketch)}"
            )
        self._sketch = sketch

    @staticmethod
    @abstractmethod
    def _seen(sketch: Any) -> int:
        """Number of values a sketch has seen."""


class KLLSketch(DataSketch):
    """The KLL sketch: a few hundred values of the stream, weighted by powers of two.

    `quantile` returns values of the stream. At any one level the rank error is below `rank_error` with probability
    99 %: 1.33 % of n at k = 200, in about 5 kB.

    **Reproducibility.** KLL draws random bits that DataSketches offers no way to seed (apache/datasketches-cpp#361):
    two runs over the same stream differ, within the error. A loaded state gives exactly the saved results, but does
    not continue bit for bit as the saved sketch would have. Where that matters, use a reservoir or GK.

    Z. Karnin, K. Lang and E. Liberty, "Optimal Quantile Approximation in Streams", FOCS 2016.

    Args:
        k: size and accuracy; 8 to 65535.

    >>> sketch = KLLSketch(k=200)
    >>> sketch.update(np.arange(100_000.0))
    >>> bool(abs(sketch.quantile(0.5) - 50_000) < 5_000), round(sketch.rank_error, 4)
    (True, 0.0133)
    >>> sketch.quantile([0.0, 1.0])
    array([    0., 99999.])
    """

    _class: ClassVar[str] = "kll_doubles_sketch"
    _least_k: ClassVar[int] = 8

    @property
    def rank_error(self) -> float:
        """The bound on the rank error of one quantile, as a fraction of n, that holds with probability 99 %."""
        return float(self._sketch.normalized_rank_error(False))

    def _quantile(self, levels: Floats) -> Floats:
        found = np.array(self._sketch.get_quantiles(levels.ravel().tolist(), inclusive=True)).reshape(levels.shape)
        # At the ends DataSketches returns the extremes of the sketch, not of the stream.
        return np.where(levels == 0, self.minimum, np.where(levels == 1, self.maximum, found))

    def _cdf(self, values: Floats) -> Floats:
        # DataSketches requires increasing points without NaN; the base class ignores the result at NaN.
        points, place = np.unique(np.nan_to_num(values, posinf=np.inf, neginf=-np.inf), return_inverse=True)
        if not points.size:
            return np.empty(values.shape)
        ranks: Floats = np.array(self._sketch.get_cdf(points.tolist(), inclusive=True))[place].reshape(values.shape)
        return ranks

    @staticmethod
    def _seen(sketch: Any) -> int:
        return int(sketch.n)


class TDigestSketch(DataSketch):
    """The t-digest: neighbouring values pooled into centroids, small in the tails and large in the middle.

    `quantile` interpolates between the means of centroids: its values need not occur in the stream. The error has no
    bound; it is smallest in the tails, and zero while all centroids are single values.

    NOTE[DIFF]: quantiles and CDF are computed from the centroids here instead of by DataSketches, because its
    `get_quantile` swaps the interpolation weights (5.2; apache/datasketches-java#755 fixes it in Java), so that it is
    not monotone and is off by 2 % where the centroids allow 0.1 %, and its `get_rank` returns the middle of a tie where
    F(x) includes all of it. A centroid that is a single value, or shares its mean with a neighbour, is a step of the
    CDF; any other has half of its weight on either side of its mean.

    **Reproducibility.** No random numbers. The digest is compressed after every update, so that reading or saving it
    does not change it: a loaded state continues bit for bit. A different split into batches gives a different digest.

    T. Dunning and O. Ertl, "Computing Extremely Accurate Quantiles Using t-Digests", 2019, arXiv:1902.04023.

    Args:
        k: compression: about 1.3·k centroids, 16 bytes each; 10 to 65535.

    >>> sketch = TDigestSketch(k=200)
    >>> sketch.update(np.arange(100_000.0))
    >>> bool(abs(sketch.quantile(0.5) - 50_000) < 1_000), bool(abs(sketch.cdf(99.0) - 0.001) < 1e-4)
    (True, True)
    """

    _class: ClassVar[str] = "tdigest_double"
    _least_k: ClassVar[int] = 10

    def _absorb(self, values: Floats) -> None:
        super()._absorb(values * _SCALE)
        self._sketch.compress()

    def _quantile(self, levels: Floats) -> Floats:
        return quantile_between(*self._points(), levels)

    def _cdf(self, values: Floats) -> Floats:
        return cdf_between(*self._points(), values)

    def _points(self) -> tuple[Floats, Floats]:
        """The points of the CDF, two per centroid: where its part of the CDF begins and ends."""
        means, weights = self._centroids()
        tied = means[1:] == means[:-1]
        step = (weights == 1) | np.append(tied, False) | np.append(False, tied)
        spread = np.where(step, 0.0, weights / 2)
        end = np.cumsum(weights)
        ranks = np.column_stack((end - weights + spread, end - spread)).ravel() / self.count
        points = np.repeat(means, 2)
        return np.concatenate(([self.minimum], points, [self.maximum])), np.concatenate(([0.0], ranks, [1.0]))

    def _centroids(self) -> tuple[Floats, Floats]:
        if self.count == 1:  # DataSketches stores a single value without centroids.
            return np.array([self.minimum]), np.ones(1)
        data = self._sketch.serialize()
        if data[1] != 1:
            raise RuntimeError(f"datasketches must write t-digests in format 1, got format {data[1]}")
        stored = np.frombuffer(data, dtype=_CENTROID, offset=_HEADER_BYTES)
        # Pooling may round a mean past its neighbour's.
        means = np.maximum.accumulate(stored["mean"] / _SCALE).clip(self.minimum, self.maximum)
        return means, stored["weight"].astype(np.float64)

    @staticmethod
    def _seen(sketch: Any) -> int:
        return int(sketch.get_total_weight())


def _restore(kind: type[DataSketch], k: int, state: State) -> DataSketch:
    estimator = kind(k)
    estimator.load_state_dict(state)
    return estimator
