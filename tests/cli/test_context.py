import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def priced(tmp_path):
    """Prices that depend on the shop and not on the day."""
    random = np.random.default_rng(0)
    shop, day = random.integers(0, 5, 3000), random.integers(0, 2, 3000)
    columns = {
        "price": random.lognormal(shop / 2),
        "shop": pa.array([f"shop {number}" for number in shop]),
        "day": pa.array([f"day {number}" for number in day]),
    }
    path = tmp_path / "priced.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_fields_are_ranked_by_how_much_the_numbers_depend_on_them(daes, priced):
    result = daes("context", priced, "--json")
    assert result.json["ranked"] == ["shop"]
    assert result.json["smallest"] == ["day", "shop"]
    assert [field["field"] for field in result.json["fields"]] == ["shop", "day"]
    assert result.json["rows"] == 3000
    text = daes("context", priced, "--rows", "1000").stdout
    assert "1,000 rows" in text
    assert "--context ranked:   shop" in text


def test_missing_is_a_group_and_no_value(daes, priced):
    table = pq.read_table(priced)
    days = pa.array([day if row % 3 else None for row, day in enumerate(table["day"].to_pylist())])
    constant = pa.array(["one" if row % 2 else None for row in range(len(table))])
    pq.write_table(table.set_column(2, "day", days).append_column("constant", constant), priced)
    result = daes("context", priced, "--json")
    shown = {field["field"]: (field["cardinality"], field["groups"]) for field in result.json["fields"]}
    assert shown == {"shop": (5, 5), "day": (2, 3), "constant": (1, 2)}
    assert result.json["smallest"] == ["constant", "day", "shop"]


def test_names_are_not_markup(daes, priced):
    table = pq.read_table(priced)
    pq.write_table(table.rename_columns(["price", "shop[/x]", "[bold]"]), priced)
    result = daes("context", priced)
    assert result.exit_code == 0, result.output
    assert "--context smallest: [bold], shop[/x]" in result.stdout


def test_a_name_with_a_line_end_stays_on_its_line(daes, priced):
    pq.write_table(pq.read_table(priced).rename_columns(["price", "sh\nop", "day\t"]), priced)
    result = daes("context", priced)
    assert "\nsh\\nop " in result.stdout
    assert "--context smallest: day\\t, sh\\nop\n" in result.stdout


def test_wrong_input_is_one_sentence(refused, priced):
    assert "must have a numerical and a categorical column" in refused("context", priced, "--exclude", "price")
    assert "'--alpha': a number above 0 and below 1 is needed, got 2" in refused("context", priced, "--alpha", "2")
    assert "'--space': must be one of rank, value" in refused("context", priced, "--space", "log")
