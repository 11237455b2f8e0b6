import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.cli.column import generated_column, open_column, open_numbers
from daes.cli.distribution import _summary_table
from daes.cli.estimator_plot import write_plot
from daes.cli.estimator_text import render, shown_levels
from daes.distribution import ESTIMATORS
from daes.distribution.estimator_report import LABELS, EstimatorReport, compare_estimators
from daes.engines import summarize_table
from daes.formatting import duration, measured, nbytes, scientific

runner = CliRunner()
ROWS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    price = rng.lognormal(size=ROWS)
    table = pa.table(
        {
            "price": pa.array(price, mask=rng.random(ROWS) < 0.1),
            "hour": rng.integers(0, 24, ROWS),
            "city": ["Bern", "Rome"] * (ROWS // 2),
            "gone": pa.nulls(ROWS, pa.float64()),
        }
    )
    pq.write_table(table, folder / "clicks.parquet", row_group_size=3000)
    pa_csv.write_csv(table, folder / "clicks.csv")
    whole = (folder / "clicks.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.csv.gz").write_bytes(gzip.compress((folder / "clicks.csv").read_bytes())[:5000])
    pq.write_table(table.slice(0, 0), folder / "norows.parquet")
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("price,hour\n")
    (folder / "typo.csv").write_text("price,hour\n1.5,3\n1.x,4\n")
    (folder / "ragged.csv").write_text("price,hour\n1.5,3\n2.5\n")
    (folder / "one.csv").write_text("city,price\nBern,1.5\nRome,NA\nRome,2.5\n")
    (folder / "words.csv").write_text("city,name\nBern,a\n")
    return folder


def run(*arguments: object, width: int = 80):
    return runner.invoke(
        build_app(), ["distribution", *map(str, arguments)], prog_name="daes", env={"COLUMNS": str(width)}
    )


def finite(path: Path, column: str) -> np.ndarray:
    values = pq.read_table(path, columns=[column]).column(0).drop_null()
    return values.to_numpy().astype(float)


@pytest.mark.parametrize("name", ["clicks.parquet", "clicks.csv"])
@pytest.mark.parametrize("column", ["price", "hour"])
def test_a_file_is_streamed_and_compared(folder, name, column):
    result = run(folder / name, "--column", column, "--levels", "0.1,0.5,0.9", "--json", "--size", 1000)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    read = json.loads(result.stdout)
    values = finite(folder / "clicks.parquet", column)
    assert (read["count"], read["skipped"]) == (values.size, ROWS - values.size)
    assert read["batches"] == -(-ROWS // 8192)
    assert read["true_quantiles"] == np.quantile(values, [0.1, 0.5, 0.9], method="inverted_cdf").tolist()
    assert [method["name"] for method in read["results"]] == list(ESTIMATORS)
    assert read["stream"] == f"column {column!r} of {folder / name}"


def test_options_reach_the_estimators(folder):
    arguments = [folder / "clicks.parquet", "-c", "price", "--json", "--estimators", "jump, gk"]
    read = json.loads(run(*arguments, "--size", 500, "--batch-size", 1000, "--seed", 7).stdout)
    assert (read["size"], read["seed"], read["batches"]) == (500, 7, ROWS // 1000)
    assert [method["name"] for method in read["results"]] == ["jump", "gk"]
    assert read["results"][0]["nbytes"] == 500 * 8
    expected = compare_estimators(
        open_column(str(folder / "clicks.parquet"), "price").batches(1000), size=500, seed=7, estimators=["jump"]
    )
    assert read["results"][0]["quantiles"] == list(expected.results[0].quantiles)


def test_the_only_column_of_numbers_need_not_be_named(folder):
    read = json.loads(run(folder / "one.csv", "--json").stdout)
    assert read["stream"].startswith("column 'price'")
    assert (read["count"], read["skipped"]) == (2, 1)


def test_what_was_done_to_the_data_is_said():
    result = run("flights", "-c", "distance", "--estimators", "jump", "--json")
    assert result.exit_code == 0
    assert re.fullmatch(r"note: \d+ of \d+ flights have no arrival delay .*\n", result.stderr)
    assert json.loads(result.stdout)["count"] > 300_000


def test_without_a_file_a_stream_is_made_up_and_said_so():
    result = run("--estimators", "jump", "--size", 1000)
    assert result.exit_code == 0
    assert result.stdout.startswith("a generated stream (no FILE was given)")
    assert "2,000,000 values" in result.stdout


def test_the_made_up_stream_is_what_it_says():
    batches = list(generated_column(num_rows=200_000).batches(8192))
    values = np.concatenate(batches)
    np.testing.assert_array_equal(values, np.concatenate(list(generated_column(num_rows=200_000).batches(7))))
    assert np.isnan(values).mean() == pytest.approx(0.05, abs=0.003)
    known = values[~np.isnan(values)]
    assert (known == 0).mean() == pytest.approx(0.30, abs=0.005)
    for part, log_median in ((values[:10_000], 0.05), (values[-10_000:], 1.95)):
        positive = np.log(part[part > 0])
        assert np.median(positive) == pytest.approx(log_median, abs=0.06)
        assert positive.std() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(21, 2), pa.bool_()])
def test_any_kind_of_number_is_read(tmp_path, kind):
    plain = [1, 0, None, 1]
    column = pa.array(plain).cast(kind)
    pq.write_table(pa.table({"x": column, "d": column.dictionary_encode()}), tmp_path / "x.parquet")
    for name in ("x", "d"):
        (values,) = open_column(str(tmp_path / "x.parquet"), name).batches(10)
        np.testing.assert_array_equal(values, [1.0, 0.0, np.nan, 1.0])


def test_large_integers_are_rounded_not_refused(tmp_path):
    pq.write_table(pa.table({"x": [2**60 + 1, None]}), tmp_path / "x.parquet")
    (values,) = open_column(str(tmp_path / "x.parquet"), "x").batches(10)
    np.testing.assert_array_equal(values, [2.0**60, np.nan])


def test_values_of_1e308_stop_nothing(tmp_path):
    values = np.random.default_rng(0).normal(size=3000)
    values[[3, 1700]] = -1e308, 1e308
    pa_csv.write_csv(pa.table({"price": values}), tmp_path / "huge.csv")
    result = run(tmp_path / "huge.csv", "--plot", tmp_path / "huge.html")
    assert result.exit_code == 0, result.output
    assert "50 %" in result.stdout
    assert (tmp_path / "huge.html").is_file()


def test_how_many_rows_to_expect(folder, tmp_path):
    assert open_column(str(folder / "clicks.parquet"), "price").expected_rows() == ROWS
    assert generated_column(num_rows=5).expected_rows() == 5
    rows = 1_500_000
    (tmp_path / "x.csv").write_text("x\n" + "1.2345678\n" * rows)
    column = open_column(str(tmp_path / "x.csv"), "x")
    expected = [column.expected_rows() for _ in column.batches(100_000)]
    assert expected[0] is None
    assert expected[-1] == pytest.approx(rows, rel=0.01)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes(), 1))
    packed = open_column(str(tmp_path / "x.csv.gz"), "x")
    assert {packed.expected_rows() for _ in packed.batches(100_000)} == {None}  # bytes unpacked tell nothing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.parquet", "-c", "price"], "there is no file {folder}/nosuch.parquet"),
        (
            ["clicks.parquet"],
            "--column must name one column of {folder}/clicks.parquet: its columns of numbers are: price, hour, gone",
        ),
        (
            ["clicks.parquet", "-c", "Prize"],
            "--column must be a column of {folder}/clicks.parquet, got 'Prize' (did you mean 'price'?); "
            "its columns of numbers are: price, hour, gone",
        ),
        (
            ["clicks.parquet", "-c", "zzz"],
            "--column must be a column of {folder}/clicks.parquet, got 'zzz'; "
            "its columns of numbers are: price, hour, gone",
        ),
        (
            ["clicks.parquet", "-c", "city"],
            "--column must hold numbers; 'city' of {folder}/clicks.parquet is of type string; "
            "its columns of numbers are: price, hour, gone",
        ),
        (
            ["clicks.csv", "-c", "city"],
            "--column must hold numbers; 'city' of {folder}/clicks.csv starts with 'Bern'; "
            "its columns of numbers are: price, hour, gone",
        ),
        (["words.csv"], "--column must name one column of {folder}/words.csv: it has no column of numbers"),
        (["typo.csv", "-c", "price"], "row 2 of {folder}/typo.csv: column 'price' must be a number, got '1.x'"),
        (["ragged.csv", "-c", "price"], "row 2 of {folder}/ragged.csv: 2 fields are expected; there are 1"),
        (
            ["clicks.parquet", "-c", "gone"],
            "column 'gone' of {folder}/clicks.parquet must have at least one finite value, got "
            f"{ROWS} values that are NaN or ±inf",
        ),
        (
            ["norows.parquet", "-c", "price"],
            "column 'price' of {folder}/norows.parquet must have at least one finite value, got none",
        ),
        (
            ["header.csv", "-c", "price"],
            "…of {folder}/header.csv must have at least one finite value, got none",
        ),
        (["empty.csv", "-c", "price"], "{folder}/empty.csv is empty"),
        (["cut.parquet", "-c", "price"], "{folder}/cut.parquet is not a whole Parquet file: …"),
        (["cut.csv.gz", "-c", "price"], "{folder}/cut.csv.gz is damaged or cut off: …"),
        (
            ["clicks.parquet", "-c", "price", "--size", "0"],
            "…'--size': a whole number of at least 1 is needed, got 0 (see daes distribution --help)",
        ),
        (
            ["clicks.parquet", "-c", "price", "--size", "-5"],
            "…at least 1 is needed, got -5 (see daes distribution --help)",
        ),
        (["clicks.parquet", "-c", "price", "--batch-size", "0"], "…'--batch-size': a whole number of at least 1 …"),
        (["clicks.parquet", "-c", "price", "--seed", "-1"], "…'--seed': a whole number of at least 0 …"),
        (["clicks.parquet", "-c", "price", "--levels", "0.5,1.5"], "levels must lie in [0, 1], got 1.5"),
        (
            ["clicks.parquet", "-c", "price", "--levels", "a"],
            "--levels must be numbers separated by commas, got 'a'",
        ),
        (
            ["clicks.parquet", "-c", "price", "--estimators", "kill"],
            "estimators must be among reservoir, jump, …, got 'kill' (did you mean 'kll'?)",
        ),
        (["clicks.parquet", "-c", "price", "--plot", "x.pdf"], "--plot must end in .html or .png, got x.pdf"),
        (
            ["clicks.parquet", "-c", "price", "--plot", "no/x.png"],
            "--plot must lie in a folder that exists, got no/x.png",
        ),
    ],
)
def test_bad_input_is_one_sentence_that_names_it(folder, arguments, message):
    """`…` in a message stands for any text."""
    result = run(folder / arguments[0], *arguments[1:])
    expected = ".*".join(map(re.escape, message.replace("{folder}", str(folder)).split("…")))
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(f"daes: {expected}\n", result.stderr), result.stderr


def test_a_column_needs_a_file():
    result = run("--column", "price")
    assert result.exit_code == 2
    assert result.stderr == "daes: --column needs a FILE to be a column of, got --column price without one\n"


@pytest.fixture(scope="module")
def comparison() -> EstimatorReport:
    rng = np.random.default_rng(0)
    return compare_estimators((1e5 * step + 1e5 * rng.random(1000) for step in range(30)), size=5000)


def shown(comparison: EstimatorReport, width: int, **options: bool) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: PTH123, SIM115
    console.print(render(comparison, width, **options))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_the_terminal(comparison, width):
    lines = shown(comparison, width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for result in comparison.results:
        (row,) = [line for line in lines if line.startswith(result.label) and nbytes(result.nbytes) in line]
        assert f"{100 * result.max_rank_error:.3f} %" in row
        assert scientific(result.kl_divergence, 1) in row
        assert duration(result.seconds) in row
        assert "–" in row if result.draws is None else f"{result.draws:,}" in row
    (head,) = [line for line in lines if line.startswith("method")]
    assert ("read" in head) == (width == 120)


@pytest.mark.parametrize("scale", [1.0, -1.234567e-7])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_quantiles_fit_whatever_they_are(scale, width):
    rng = np.random.default_rng(0)
    comparison = compare_estimators((scale * rng.lognormal(size=1000) for _ in range(30)), size=5000)
    lines = shown(comparison, width)
    lines = lines[lines.index("Quantiles") :]
    assert not any("…" in line for line in lines)
    (at,) = [row for row, level in enumerate(comparison.levels) if level == 0.5]
    words = " ".join(line for line in lines if line.lstrip().startswith("50 %")).split()
    for result in comparison.results:
        assert any(word.rstrip("*!") == measured(result.quantiles[at]) for word in words)


def test_bars_grow_with_the_error_and_neighbours_share(comparison):
    def strip(label: str, width: int, **options: bool) -> str:
        lines = shown(comparison, width, **options)
        start = lines.index("Rank error by level")
        return next(line for line in lines[start:] if line.startswith(label)).removeprefix(label).strip()

    assert len(strip("OS", 120)) == 99
    assert len(strip("OS", 80)) == 50
    means = next(result for result in comparison.results if result.name == "order-statistics")
    limits = (0.0005, 0.001, 0.002, 0.004, 0.01, 0.02, 0.05)
    expected = "".join("▁▂▃▄▅▆▇█"[sum(abs(error) > limit for limit in limits)] for error in means.rank_errors)
    assert strip("OS", 120) == expected
    assert strip("OS", 80)[:3] == "".join(max(expected[i : i + 2]) for i in (0, 2, 4))
    plain = strip("OS", 120, plain=True)
    assert plain == expected.translate(str.maketrans("▁▂▃▄▅▆▇█", "12345678"))


def test_quantiles_are_marked_where_they_err(comparison):
    lines = shown(comparison, 120)
    start = lines.index("Quantiles")
    (row,) = [line for line in lines[start:] if line.lstrip().startswith("5 %")]
    at = comparison.levels.index(0.05)
    cells = row.split()[2:]
    assert cells[0] == measured(comparison.true_quantiles[at])
    for cell, result in zip(cells[1:], comparison.results, strict=True):
        error = abs(result.rank_errors[at])
        mark = "" if error <= 0.004 else "*" if error <= 0.02 else "!"
        assert cell == measured(result.quantiles[at]) + mark
    assert cells[4].endswith("!")  # order statistics, under drift


def test_which_levels_are_shown():
    assert shown_levels([0.2, 0.4]) == [0, 1]
    percents = [level / 100 for level in range(1, 100)]
    assert [percents[i] for i in shown_levels(percents)] == [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]


def test_a_page_stands_alone(comparison, tmp_path):
    path = tmp_path / "page.html"
    write_plot(comparison, path, "column '<b>&price' of x.csv")
    page = path.read_text(encoding="utf-8")
    assert "<title>column &#39;&lt;b&gt;&amp;price&#39; of x.csv" in page
    assert "<b>&price" not in page
    assert "prefers-color-scheme: dark" in page
    for label in LABELS.values():
        assert f"</i>{label}</th>" in page
        assert f'"name":"{label}"' in page
    # Nothing is loaded from elsewhere: no script, style or image has an address.
    head = page.replace("\n", " ")
    for tag in ("<script src", '<script type="text/javascript" src', "<link ", "<img ", "@import"):
        assert tag not in head
    assert '"type":"log"' in page
    assert len(page) < 2e6


def test_a_png_is_a_picture(comparison, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "picture.png"
    write_plot(comparison, path, "column 'price $' of x_1.csv")
    pixels = image.imread(path)
    assert pixels.shape[:2] == (1200, 1350)
    assert pixels[..., :3].std() > 0.05


def test_the_command_writes_the_plot_and_says_so(folder, tmp_path):
    path = tmp_path / "price.html"
    result = run(folder / "clicks.parquet", "-c", "price", "--estimators", "jump", "--plot", path)
    assert result.exit_code == 0
    assert result.stderr == f"wrote {path}\n"
    assert "JRS exact" in path.read_text(encoding="utf-8")
    assert "RS</th>" not in path.read_text(encoding="utf-8")


def test_in_a_process_of_its_own(folder):
    arguments = ["distribution", str(folder / "clicks.parquet"), "--column", "price", "--json"]
    done = subprocess.run([sys.executable, "-m", "daes", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["count"] == finite(folder / "clicks.parquet", "price").size


class TestEngines:
    """What can be said without an engine; `tests/engines` has the rest."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--ray"], "--ray needs a FILE to read, got none"),
            (["x.csv", "--ray", "--spark"], "--ray and --spark exclude each other, got both"),
            (
                ["x.csv", "--spark", "--estimators", "jump"],
                "--spark compares no estimators, got --estimators or --plot",
            ),
            (["x.csv", "--ray", "--levels", "2"], "levels must lie in [0, 1], got 2.0"),
            (["words.csv", "--spark"], "words.csv must have a column of numbers; its columns are city, name"),
        ],
    )
    def test_bad_usage(self, folder, monkeypatch, arguments, sentence):
        monkeypatch.chdir(folder)
        result = run(*arguments)
        assert (result.exit_code, result.stderr) == (2, f"daes: {sentence}\n")

    @pytest.mark.parametrize("engine", ["ray", "spark"])
    def test_an_engine_that_is_not_installed(self, folder, monkeypatch, engine):
        package = {"ray": "ray", "spark": "pyspark"}[engine]
        monkeypatch.setitem(sys.modules, package, None)
        result = run(folder / "clicks.parquet", f"--{engine}")
        assert result.exit_code == 1
        assert result.stderr == f"daes: {package} is needed here and not installed: pip install 'daes[{engine}]'\n"

    def test_the_text(self, folder):
        summary = summarize_table(open_numbers(str(folder / "clicks.parquet"), None), parts=3)
        console = Console(width=80)
        with console.capture() as capture:
            console.print(_summary_table(summary, [0.5]))
        lines = [line.split() for line in capture.get().splitlines()]
        assert lines[0] == ["column", "missing", "min", "50", "%", "max"]
        median = np.quantile(finite(folder / "clicks.parquet", "hour"), 0.5, method="inverted_cdf")
        assert lines[3] == ["hour", "0", "%", "0", f"{median:g}", "23"]
        assert lines[4] == ["gone", "100", "%", "–", "–", "–"]


def test_a_column_that_is_there_twice_is_refused(refused, tmp_path):
    (tmp_path / "twice.csv").write_text("label,a,a\n1,2,3\n")
    assert "column names must be unique; 'a' occurs twice" in refused("distribution", tmp_path / "twice.csv", "-c", "a")
