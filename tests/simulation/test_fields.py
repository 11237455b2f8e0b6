"""Simulated categories: weights, hierarchies, new ids."""

import numpy as np
import pytest
from scipy import stats

from daes.simulation import LawDrift

ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


class TestCategories:
    def test_roots_follow_their_weights(self, still_rows, stream):
        rows = still_rows
        source = stream()
        for law in source.laws.values():
            counts = np.bincount(rows.codes[law.spec.context], minlength=len(law.probabilities))
            assert stats.chisquare(counts, law.probabilities * counts.sum()).pvalue > ALPHA

    def test_roots_are_independent(self, still_rows):
        rows = still_rows
        roots = ("device", "country", "placement", "category", "format")
        for i, first in enumerate(roots):
            for second in roots[:i]:
                table = np.zeros((rows.codes[first].max() + 1, rows.codes[second].max() + 1))
                np.add.at(table, (rows.codes[first], rows.codes[second]), 1)
                assert stats.chi2_contingency(table).pvalue > ALPHA

    def test_ids_follow_zipf(self, still_rows):
        rows = still_rows
        slots, exponent = 40, 0.9
        own = rows.codes["advertiser"][rows.codes["category"] == 0]
        k = np.arange(1, slots + 2.0)
        law = np.diff(k ** (1 - exponent))
        counts = np.bincount(own, minlength=slots)
        assert len(counts) == slots
        assert stats.chisquare(counts, law / law.sum() * counts.sum()).pvalue > ALPHA
        slope = np.polyfit(np.log(np.arange(5, slots + 1)), np.log(law[4:]), 1)[0]
        assert abs(slope + exponent) < 0.05

    @pytest.mark.parametrize(
        ("child", "parent"),
        [
            ("creative", "campaign"),
            ("campaign", "advertiser"),
            ("advertiser", "category"),
            ("site", "placement"),
            ("user", "country"),
            ("gender", "user"),
            ("interest", "user"),
            ("segment", "user"),
        ],
    )
    def test_hierarchies_hold_for_all_time(self, child, parent, moving_rows):
        rows = moving_rows
        of, by = (parent, child) if child in ("gender", "interest", "segment") else (child, parent)
        pairs = np.unique(np.stack([rows.codes[of], rows.codes[by]]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1]

    def test_new_ids_appear_unless_switched_off(self, stream):
        for drift, new in ((LawDrift(daily=0, slow=0, abrupt=0), True), (LawDrift(churn=0), False)):
            rows = stream(drift=drift, users=5000).features(0, 400_000)
            # Ten days on, creatives (3 days) are all new, of campaigns (12) and users (60) the part that has changed.
            for name, part in (("creative", 1.0), ("campaign", 10 / 12), ("user", 10 / 60)):
                codes = rows.codes[name]
                early = np.unique(codes[:200_000])
                late = np.mean(~np.isin(codes[-20_000:], early))
                assert late == pytest.approx(part if new else 0.0, abs=0.06), name

    def test_users_sets_how_many_there_are(self, stream):
        codes = stream(drift=None, users=500).features(0, 50_000).codes["user"]
        assert len(np.unique(codes)) == pytest.approx(500, abs=12)

    def test_clock_fields_agree_with_time(self, stream):
        table = stream().table(0, 150_000, ["time", "hour", "weekday"])
        time = table["time"].to_pandas()
        assert (np.array(time.diff()[1:]) >= np.timedelta64(0)).all()
        assert list(time.dt.hour.astype(str)) == table["hour"].to_pylist()
        assert list(time.dt.strftime("%a")) == table["weekday"].to_pylist()
        assert str(time[0]) == "2024-01-01 00:00:00"

    def test_missing_categories_are_null(self, stream):
        table = stream().table(0, 20_000)
        rates = {name: table[name].null_count / 20_000 for name in stream().schema.categorical}
        assert 0.1 < rates["gender"] < 0.14
        assert 0.02 < rates["city"] < 0.05
        assert 0.05 < rates["browser"] < 0.15
        assert sum(rate > 0 for rate in rates.values()) == 3
