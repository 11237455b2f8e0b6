"""Reading the simulated stream never changes it."""

import json
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest

from daes.simulation import AdStream, LawDrift, Signal
from daes.stream.batch import Batch, batch_from_table
from daes.stream.hashing import hash_column
from daes.stream.schema import Schema, infer_schema

ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


class TestReading:
    @pytest.mark.parametrize("batch_size", [1, 7, 1000, 4096, 16_384, 50_000])
    def test_split_invariance(self, batch_size):
        source = AdStream(40_000, seed=3)
        whole = source.batch(0, 40_000)
        rows = 40_000 if batch_size > 100 else 300
        batches = list(islice(source.iter_batches(source.schema, batch_size), -(-rows // batch_size)))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert Batch.concat(batches)[:rows].equals(whole[:rows])

    def test_one_seed_one_stream_whatever_its_length_and_block(self, monkeypatch):
        first, again = AdStream(40_000, seed=3), AdStream(None, seed=3)
        assert first.batch(0, 40_000).equals(again.batch(0, 40_000))
        assert not first.batch(0, 1000).equals(AdStream(40_000, seed=4).batch(0, 1000))
        batch, probability = first.batch(0, 5000), first.click_probability(0, 5000)
        monkeypatch.setattr("daes.simulation.source._BLOCK", 999)
        blocks = AdStream(40_000, seed=3)
        assert np.array_equal(blocks.batch(0, 5000).categorical, batch.categorical)
        assert np.allclose(blocks.batch(0, 5000).numerical, batch.numerical, rtol=1e-5, equal_nan=True)
        assert np.allclose(blocks.click_probability(0, 5000), probability, rtol=1e-4)

    def test_seek_continues_with_the_same_boundaries(self):
        source = AdStream(30_000, seed=3)
        batches = source.iter_batches(source.schema, 700)
        for _ in range(5):
            next(batches)
        position = json.loads(json.dumps(source.position()))
        assert position == {"row": 3500, "batch": 5}
        rest = list(batches)
        fresh = AdStream(30_000, seed=3)
        fresh.seek(position)
        resumed = list(fresh.iter_batches(fresh.schema, 700))
        assert len(rest) == len(resumed) == 38
        assert all(a.equals(b) for a, b in zip(rest, resumed, strict=True))
        assert fresh.position() == {"row": 30_000, "batch": 43}
        assert list(fresh.iter_batches(fresh.schema, 700)) == []
        fresh.seek({"row": 0})
        assert next(fresh.iter_batches(fresh.schema, 10)).equals(source.batch(0, 10))

    def test_far_away_rows_cost_no_more(self):
        source = AdStream(None)
        source.seek({"row": 10**9})
        batch = next(source.iter_batches(source.schema, 100))
        assert source.position() == {"row": 10**9 + 100, "batch": 1}
        assert batch.equals(batch_from_table(source.table(10**9, 10**9 + 100), source.schema))

    def test_an_iterator_ends_with_the_next(self):
        source = AdStream(1000)
        old = source.iter_batches(source.schema, 10)
        next(old)
        source.seek({"row": 0})
        with pytest.raises(RuntimeError, match="this iterator has ended"):
            next(old)

    @pytest.mark.parametrize("batch_size", [300, 1000])
    def test_shards_share_out_the_batches(self, batch_size):
        whole = AdStream(5000, seed=2)
        batches = list(whole.iter_batches(whole.schema, batch_size))
        for rank in range(3):
            shard = AdStream(5000, seed=2)
            shard.configure(shard=(rank, 3))
            own = list(shard.iter_batches(shard.schema, batch_size))
            assert len(own) == len(batches[rank::3])
            assert all(a.equals(b) for a, b in zip(own, batches[rank::3], strict=True))
        resumed = AdStream(5000, seed=2)
        resumed.configure(shard=(1, 3))
        next(resumed.iter_batches(resumed.schema, batch_size))
        rest = list(resumed.iter_batches(resumed.schema, batch_size))
        assert all(a.equals(b) for a, b in zip(rest, batches[4::3], strict=True))

    def test_batches_are_what_tables_say(self):
        source = AdStream(20_000, seed=1, rows_per_day=2000)
        for start, stop in ((0, 3000), (15_000, 20_000), (5, 5)):
            table = source.table(start, stop)
            assert batch_from_table(table, source.schema).equals(source.batch(start, stop))
        source.seek({"row": 16_000})
        tables = list(source.iter_tables(None, 1500))
        assert pa.concat_tables(tables).equals(source.table(16_000, 20_000))
        assert source.arrow_schema == source.table(0, 10).schema
        source.seek({"row": 1})
        assert next(source.iter_tables(["city", "price"], 2)).equals(source.table(1, 3, ["city", "price"]))

    def test_categories_hash_as_their_text(self):
        for rows_per_day in (50, 20_000):  # more than a year, hence many generations of ids, and one day
            source = AdStream(20_000, rows_per_day=rows_per_day)
            for start, stop in ((0, 300), (300, 20_000), (100, 900)):
                table, batch = source.table(start, stop), source.batch(start, stop)
                for column, name in enumerate(source.schema.categorical):
                    assert np.array_equal(hash_column(table[name]), batch.categorical[:, column])

    def test_any_schema(self):
        source = AdStream(1000)
        table = source.table(0, 1000)
        for schema in (
            Schema(None, ("user_age", "price"), ("city",)),
            Schema("click", (), ("creative", "device")),
            Schema("click", ("price",), (), time="time"),
            Schema("click", ("price", "clicks_7d"), ("user_age", "hour"), weight="impressions_7d"),
        ):
            source.seek({"row": 0})
            batch = next(source.iter_batches(schema, 1000))
            assert batch.equals(batch_from_table(table, schema))

    def test_the_schema_is_the_inferred_one(self):
        source = AdStream(1000)
        assert infer_schema(source.table(0, 1000)) == source.schema
        assert source.schema.num_numerical == 10
        assert source.schema.num_categorical == 20

    def test_what_is_handed_out_can_be_changed_and_what_is_kept_cannot(self):
        source = AdStream(1000)
        before = source.batch(0, 100)
        batch = next(source.iter_batches(source.schema, 100))
        batch.numerical[:] = 0
        assert source.batch(0, 100).equals(before)
        with pytest.raises(ValueError, match="read-only"):
            source.features(0, 10).numerical["price"][0] = 1

    def test_no_rows(self):
        source = AdStream(0)
        assert list(source.iter_batches(source.schema, 10)) == []
        assert source.table(0, 0).num_rows == 0
        assert source.num_rows == 0


class TestCandidates:
    def test_the_request_stays_and_the_ad_changes(self, stream):
        source = stream()
        shown, *others = source.candidates(1000, 3000, 4)
        assert np.array_equal(source.truth.probability(shown), source.click_probability(1000, 3000))
        fields = {"device": True, "user": True, "hour": True, "site": True, "creative": False, "category": False}
        for other in others:
            for name, same in fields.items():
                assert np.array_equal(other.codes[name], shown.codes[name]) == same
            assert np.array_equal(other.numerical["user_age"], shown.numerical["user_age"], equal_nan=True)
            assert not np.array_equal(other.numerical["price"], shown.numerical["price"])
            assert np.array_equal(np.isnan(other.numerical["ctr_7d"]), other.numerical["impressions_7d"] == 0)
            assert np.corrcoef(source.truth.logit(other), source.truth.logit(shown))[0, 1] < 0.8
        assert not np.array_equal(others[0].codes["creative"], others[1].codes["creative"])

    def test_a_candidate_depends_on_its_row_and_number_alone(self, stream):
        source = stream()
        few, many = source.candidates(1000, 1100, 2), source.candidates(990, 1050, 5)
        assert np.array_equal(few[1].codes["creative"][:50], many[1].codes["creative"][10:])
        assert np.allclose(few[1].numerical["price"][:50], many[1].numerical["price"][10:], rtol=1e-5)

    def test_candidates_follow_the_same_laws(self, discrete_ks, observed, stream):
        source = stream(drift=None)
        other = source.candidates(0, 50_000, 2)[1]
        for name in ("price", "bid", "impressions_7d", "ctr_7d", "distance_km"):
            assert discrete_ks(observed(other, name), source.laws[name].rank)[1] > ALPHA
        click_rate = source.truth.probability(other).mean()
        assert click_rate == pytest.approx(source.click_probability(0, 50_000).mean(), rel=0.03)


class TestBadArguments:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_rows": -1}, "num_rows must be non-negative, got -1"),
            ({"seed": -3}, "seed must be non-negative"),
            ({"world": -1}, "world must be non-negative"),
            ({"users": 0}, "users must be positive, got 0"),
            ({"rows_per_day": 0}, "rows_per_day must be positive"),
        ],
    )
    def test_values(self, options, message):
        with pytest.raises(ValueError, match=message):
            AdStream(**options)

    @pytest.mark.parametrize(
        "options", [{"num_rows": 1e6}, {"seed": 0.5}, {"users": "many"}, {"drift": "none"}, {"signal": {"rank": 1}}]
    )
    def test_types(self, options):
        with pytest.raises(TypeError, match=f"{next(iter(options))} must be"):
            AdStream(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"daily": -1}, "daily must be"), ({"slow_period": 0}, "slow_period must be finite and positive")],
    )
    def test_drift(self, options, message):
        with pytest.raises(ValueError, match=message):
            LawDrift(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"base_rate": 0.0}, "base_rate must be between 0 and 1, got 0.0"),
            ({"base_rate": float("nan")}, "base_rate must be"),
            ({"value": -1.0}, "value must be finite and non-negative, got -1.0"),
            ({"value": 0, "rank": 0, "context_rank": 0}, "one of value, rank and context_rank must be positive"),
            ({"numerical": -0.5}, "numerical must be finite and non-negative, got -0.5"),
            ({"categorical": float("inf")}, "categorical must be finite"),
        ],
    )
    def test_signal(self, options, message):
        with pytest.raises(ValueError, match=message):
            Signal(**options)

    def test_rows_and_columns(self):
        source = AdStream(100)
        for call in (source.batch, source.table, source.features, source.click_probability):
            for start, stop in ((-1, 5), (5, 4), (0, 101)):
                with pytest.raises(ValueError, match="rows must be 0 ≤ start ≤ stop ≤ 100"):
                    call(start, stop)
        with pytest.raises(ValueError, match="no column 'prize'; did you mean 'price'"):
            source.table(0, 1, ["prize"])
        with pytest.raises(ValueError, match="no column 'prize'"):
            source.numbers("prize", 0, 1)
        with pytest.raises(ValueError, match="no column 'prize'"):
            source.iter_batches(Schema("click", ("prize",), ()), 10)
        with pytest.raises(ValueError, match="count must be positive"):
            source.candidates(0, 1, 0)
        with pytest.raises(ValueError, match="stop must be given"):
            AdStream(None).bayes_metrics()
        for batch_size in (0, -5):
            with pytest.raises(ValueError, match="batch_size must be a positive integer"):
                source.iter_batches(source.schema, batch_size)

    @pytest.mark.parametrize(
        "position", [{}, {"batch": 1}, {"row": 1, "file": 2}, {"row": -1}, {"row": 101, "batch": 1}]
    )
    def test_positions(self, position):
        with pytest.raises(ValueError, match="position"):
            AdStream(100).seek(position)

    def test_signal_is_scaled(self):
        signal = Signal(value=2, rank=2, context_rank=0)
        assert (signal.value, signal.rank, signal.context_rank) == (0.5, 0.5, 0.0)
