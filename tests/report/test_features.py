import json

import numpy as np
import pytest

from daes.report.features import ColumnSummary, column_summaries, fresh_shares, table_loads
from daes.report.learned import read_findings
from daes.report.run_record import DriftSeries, RunRecord, read_run


def test_columns_are_those_of_the_files_in_the_order_of_importance(gate_run):
    run = read_run(gate_run)
    columns = column_summaries(run, read_findings(gate_run / "model", run).learned)
    importance = json.loads((gate_run / "importance.json").read_text())["columns"]
    monitor = json.loads((gate_run / "monitor.json").read_text())
    assert [column.name for column in columns] == [column["name"] for column in importance]
    assert [column.rise for column in columns] == [column["logloss"] for column in importance]
    for column in columns:
        assert column.missing == pytest.approx(np.mean(monitor["missing"][column.name]), rel=1e-5)
        if column.kind == "numerical":
            assert column.drift == max(monitor["features"][column.name]["psi"])
            assert column.path.startswith("M0 ")
        else:
            assert column.distinct == monitor["distinct"][column.name][-1]
            assert column.path == ""


def test_a_segment_with_few_values_of_a_feature_does_not_make_it_drift():
    psi, chance = np.array([[0.01, 1.7], [8.1, 0.2], [0.3, 0.9]]), np.array([[0.01, 0.5], [9.5, 0.4], [0.02, 0.5]])
    rows = np.array([1000.0, 1030.0, 2030.0])
    drift = DriftSeries(("full", "rare"), rows, 1000, psi, psi, chance, chance)
    columns = column_summaries(RunRecord("a run", schema={"numerical": ["full", "rare"]}, drift=drift), None)
    assert {column.name: column.drift for column in columns} == {
        "full": 0.3,
        "rare": pytest.approx(np.nan, nan_ok=True),
    }


def test_without_importance_the_range_of_the_response_decides():
    from daes.report.learned import LEVELS, Learned

    flat, steep = np.full(len(LEVELS), 0.2), np.linspace(0.1, 0.9, len(LEVELS))
    values = np.tile(LEVELS, (2, 1))
    learned = Learned(("flat", "steep"), values, None, np.stack([flat, steep]), np.zeros(2))
    run = RunRecord("a run", schema={"numerical": ["flat", "steep"]})
    assert [column.name for column in column_summaries(run, learned)] == ["steep", "flat"]


def test_fresh_shares_are_new_values_over_rows():
    rows = np.array([1000.0, 2000.0, 3000.0, 4000.0])
    distinct = {"user": np.array([900.0, 1500.0, 2000.0, 2400.0]), "city": np.array([7.0, 7.0, 7.0, 7.0])}
    assert fresh_shares(RunRecord("a run", segment_rows=rows, distinct=distinct)) == {"user": 0.45, "city": 0.0}
    assert fresh_shares(RunRecord("a run", segment_rows=rows[:1], distinct={"user": rows[:1]})) == {}


def test_the_path_of_a_constant_response_is_a_line():
    assert ColumnSummary("x", "numerical", response=np.full(3, 0.5)).path == "M0 12L50 12L100 12"


def record(values, size, **options):
    model = {"sizes": {"city": size}, "categorical_options": options}
    return RunRecord("a run", config={"model": model}, distinct={"city": np.array([1.0, values])})


@pytest.mark.parametrize(("values", "size"), [(50, 100), (2000, 1000)])
def test_the_load_of_a_hashed_table_is_what_hashing_gives(values, size):
    random = np.random.default_rng(0)
    filled, shared = [], []
    for _ in range(200):
        counts = np.bincount(random.integers(0, size, values), minlength=size)
        filled.append((counts > 0).mean())
        shared.append(counts[counts > 1].sum() / values)
    load = table_loads(record(values, size))["city"]
    assert load["filled"] == pytest.approx(np.mean(filled), rel=0.02)
    assert load["shared"] == pytest.approx(np.mean(shared), rel=0.02)


def test_a_vocabulary_shares_what_it_has_no_row_for():
    load = table_loads(record(150.0, 100, mode="vocabulary"))["city"]
    assert (load["filled"], load["shared"]) == (1.0, pytest.approx(1 / 3))
    load = table_loads(record(20.0, 100, mode="vocabulary"))["city"]
    assert (load["filled"], load["shared"]) == (0.2, 0.0)
