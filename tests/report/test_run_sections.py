from daes.report.content import Paragraph
from daes.report.features import ColumnSummary
from daes.report.run_record import RunRecord
from daes.report.run_sections import category_blocks


def test_the_table_has_every_categorical_column():
    run = RunRecord("a run")
    known = ColumnSummary(
        "city",
        "categorical",
        distinct=50.0,
        fresh=0.25,
        missing=0.1,
        rise=0.02,
        table_rows=100,
        filled=0.39,
        shared=0.38,
    )
    price, user = ColumnSummary("price", "numerical"), ColumnSummary("user", "categorical")
    table = category_blocks(run, [known, price, user])[1]
    assert table.rows == [
        ("city", "50", "25.0 %", "10.0 %", "100", "39 %", "38 %", "0.0200"),
        ("user", *["–"] * 7),
    ]
    assert category_blocks(run, [price]) == [Paragraph("There is no categorical column.")]
    assert "was not recorded" in category_blocks(run, [user, price])[0].text
