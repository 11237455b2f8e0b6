"""Tables in a terminal."""

import io

import pytest
from rich.console import Console

from daes.table import Table


@pytest.mark.parametrize("width", [60, 80])
def test_numbers_are_whole_in_a_narrow_terminal(width):
    name = "the_name_of_a_column_that_has_forty_eight_letters"
    rows = [(name, "0.1234", "12", "0.0012", "0.1234", "3"), ("age", "0.5678", "7", "0.0034", "0.9012", "4")]
    console = Console(width=width, file=io.StringIO())
    console.print(Table(("feature", "largest PSI", "segment", "by chance", "largest KS", "segment"), rows))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["age", *rows[1][1:]] in lines
    assert any(line[1:] == list(rows[0][1:]) for line in lines)
    assert "".join(line[0] for line in lines if line and line[0] in name) == name
