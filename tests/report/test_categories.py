import numpy as np
import pytest

from daes.report.categories import category_blocks, table_loads
from daes.report.content import Paragraph
from daes.report.features import ColumnSummary
from daes.report.run_record import RunRecord


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
    (load,) = table_loads(record(values, size))
    assert load.filled == pytest.approx(np.mean(filled), rel=0.02)
    assert load.shared == pytest.approx(np.mean(shared), rel=0.02)


def test_a_vocabulary_shares_what_it_has_no_row_for():
    (load,) = table_loads(record(150.0, 100, mode="vocabulary"))
    assert (load.filled, load.shared) == (1.0, pytest.approx(1 / 3))
    (load,) = table_loads(record(20.0, 100, mode="vocabulary"))
    assert (load.filled, load.shared) == (0.2, 0.0)


def test_the_table_has_every_categorical_column():
    run = record(50.0, 100)
    columns = [
        ColumnSummary("city", "categorical", distinct=50.0, fresh=0.25, missing=0.1, rise=0.02),
        ColumnSummary("price", "numerical"),
    ]
    table = category_blocks(run, columns, table_loads(run))[1]
    assert table.rows == [("city", "50", "25.0 %", "10.0 %", "100", "39 %", "39 %", "0.0200")]
    assert category_blocks(run, columns[1:], []) == [Paragraph("There is no categorical column.")]
    assert "was not recorded" in category_blocks(RunRecord("a run"), columns, [])[0].text
