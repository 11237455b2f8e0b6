from daes.cli.columns_text import columns_lines
from daes.stream.columns import InferredColumn


def test_long_names_that_differ_at_their_ends_and_few_missing_values():
    start = "impressions_of_user_in_the_last_"
    columns = [
        InferredColumn(f"{start}{days}_days", "numerical", "numbers", ("1",), 2, missing, ())
        for days, missing in ((7, 0.0), (30, 0.001))
    ]
    _, seven, thirty = columns_lines(columns)
    assert seven.split()[0].endswith("7_days")
    assert thirty.split()[0].endswith("30_days")
    assert not seven.endswith("%")
    assert thirty.endswith("< 1 %")
