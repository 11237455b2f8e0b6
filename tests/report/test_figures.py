import json
import math

import numpy as np
import pytest

from daes.report.distribution_figures import rank_distance
from daes.report.figures import MOST_SHOWN, Line, first, heat_map, lines, named, spread
from daes.report.performance_figures import thinned
from daes.report.rendering import compact_json


@pytest.mark.parametrize("seed", range(5))
def test_spread_moves_labels_apart_and_as_little_as_possible(seed):
    rng = np.random.default_rng(seed)
    places = np.sort(rng.normal(size=6))
    found = np.array(spread(places.tolist(), 0.4))
    assert (np.diff(found) >= 0.4 - 1e-9).all()
    cost = np.square(found - places).sum()
    for _ in range(3000):
        other = np.sort(found + rng.normal(scale=rng.choice([0.01, 0.1, 1.0]), size=6))
        if (np.diff(other) >= 0.4).all():
            assert np.square(other - places).sum() >= cost - 1e-9


def test_spread_leaves_alone_what_is_apart():
    assert spread([], 1.0) == []
    assert spread([0.0, 1.5, 3.0], 1.0) == [0.0, 1.5, 3.0]


def test_lines_are_labelled_inside_the_frame_and_in_order():
    series = [Line(name, name, [0, 50, 100], [0.5, 0.7, end]) for name, end in (("a", 0.71), ("b", 0.7101), ("c", 0.5))]
    _, layout = lines(series, y_title="AUC", height=300)
    low, high = layout["yaxis"]["range"]
    labels = {label["group"]: label["y"] for label in layout["annotations"]}
    assert low <= labels["c"] < labels["a"] < labels["b"] <= high
    gap = 15 / 240 * (high - low)
    assert labels["b"] - labels["a"] >= gap - 1e-9


def test_the_frame_leaves_out_what_happens_before_a_metric_settles():
    rows = np.arange(1, 101)
    values = np.where(rows < 8, 0.1, 0.7 + rows / 1000)
    _, layout = lines([Line("a", "a", rows, values)], y_title="AUC", height=300, settle=0.1)
    assert layout["yaxis"]["range"][0] > 0.6
    _, layout = lines([Line("a", "a", rows, values)], y_title="AUC", height=300)
    assert layout["yaxis"]["range"][0] < 0.1


def test_lines_without_a_number_have_no_frame_and_no_label():
    data, layout = lines([Line("a", "a", [1, 2], [math.nan, math.nan])], y_title="AUC", height=300)
    assert "range" not in layout["yaxis"]
    assert "annotations" not in layout
    assert json.loads(compact_json(data))[0]["y"] == [None, None]


def test_a_constant_line_has_a_frame_around_it():
    _, layout = lines([Line("a", "a", [1, 2], [0.0, 0.0])], y_title="AUC", height=300)
    low, high = layout["yaxis"]["range"]
    assert low < 0 < high


def test_places_on_a_logarithmic_axis_are_powers_of_ten():
    line = Line("a", "a", [1, 2], [1.0, 1000.0])
    _, layout = lines([line], y_title="", height=300, y_axis={"type": "log"})
    assert layout["annotations"][0]["y"] == pytest.approx(3.0)
    assert layout["yaxis"]["range"] == pytest.approx([-0.18, 3.18])


def test_labels_are_apart_in_the_range_that_is_given():
    series = [Line("a", "a", [1, 2], [0.0, 0.00]), Line("b", "b", [1, 2], [0.0, 0.01])]
    _, layout = lines(series, height=300, y_axis={"range": [-1.0, 1.0]})
    below, above = (label["y"] for label in layout["annotations"])
    assert above - below == pytest.approx(2.0 * 15 / 240)


def test_a_heat_map_keeps_its_names_apart_and_its_gaps_blank():
    names = ["x" * 60 + "1", "x" * 60 + "2"]
    data, layout = heat_map(
        names, [1, 2], [[0.5, np.nan], [1.0, np.inf]], "PSI", {"title": {"text": "rows"}}, percent=True
    )
    assert data[0]["y"] == [0, 1]
    assert len(layout["yaxis"]["ticktext"]) == 2
    assert max(map(len, layout["yaxis"]["ticktext"])) <= 24
    assert max(map(len, layout["yaxis"]["narrowtext"])) <= 14
    assert json.loads(compact_json(data))[0]["z"] == [[50, None], [100, None]]
    assert data[0]["zmax"] == pytest.approx(97.5)


def test_names_in_plots_are_escaped_after_they_are_shortened():
    assert named("<b>&amp;</b>") == "&lt;b&gt;&amp;amp;&lt;/b&gt;"
    assert named("a" * 40, 9) == "aaaa…aaaa"


def test_rank_distance_by_hand():
    final, levels = np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.5, 1.0])
    found = rank_distance(np.array([[0.0, 15.0, 20.0], [-5.0, 10.0, 40.0]]), final, levels)
    np.testing.assert_allclose(found, [[0.0, 0.25, 0.0], [0.0, 0.0, 0.0]])


def test_any_rank_of_a_tie_is_as_good_as_the_other():
    final, levels = np.array([0.0, 0.0, 0.0, 6.0]), np.array([0.0, 1 / 3, 2 / 3, 1.0])
    np.testing.assert_allclose(rank_distance(np.array([[0.0, 0.0, 0.0, 6.0]]), final, levels), 0.0, atol=1e-12)
    np.testing.assert_allclose(rank_distance(np.array([[0.0, 3.0, 3.0, 3.0]]), final, levels)[0, 1], 5 / 6 - 1 / 3)
    # 2/3 of the values were 0: a median of 0 was no error, one of 3 is one of 1/6 at the 2/3 level
    np.testing.assert_allclose(rank_distance(np.array([[0.0, 3.0, 3.0, 3.0]]), final, levels)[0, 2], 5 / 6 - 2 / 3)


def test_thinned_keeps_the_ends():
    for length in (1, 2, 19, 20, 21, 1000):
        found = thinned(length, 20)
        assert found[0] == 0
        assert found[-1] == length - 1
        assert len(found) == min(length, 20)
    assert thinned(0, 20) == []


def test_the_most_interesting_features_are_shown_in_either_order():
    order = list(range(100, 0, -1))
    shown, said = first(order)
    assert shown == order[:MOST_SHOWN]
    assert said == " Only the first 60 of 100 are shown."
    assert first(order, keep_order=True)[0] == sorted(shown)
    assert first([3, 1, 2]) == ([3, 1, 2], "")
