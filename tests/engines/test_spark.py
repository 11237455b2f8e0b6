import numpy as np
import pytest

pytestmark = pytest.mark.engines


def test_a_frame(spark_engine, folder, table):
    from daes.engines.spark import summarize_frame

    frame = spark_engine.session.read.parquet(str(folder / "clicks.parquet")).repartition(3)
    summary = summarize_frame(frame, size=10_000)
    assert summary.columns == ("price", "hour")
    assert (summary.rows, summary.skipped.tolist()) == (6000, [table["price"].null_count, 0])
    np.testing.assert_array_equal(
        np.sort(summary.reservoir("price").sample), np.sort(table["price"].drop_null().to_numpy())
    )
    with pytest.raises(ValueError, match="frame must have a column of numbers, got city"):
        summarize_frame(frame.select("city"))
