import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

from daes.distribution import drift_profile


def test_psi_and_ks_of_every_numerical_column(daes, clicks):
    result = daes("drift", clicks, "--segments", "6", "--exclude", "id", "--json")
    assert (result.json["rows"], set(result.json["columns"])) == (1200, {"price", "age"})
    price = pq.read_table(clicks)["price"].to_numpy()
    expected = drift_profile(price.astype(np.float32), 6)
    found = result.json["columns"]["price"]
    np.testing.assert_allclose(found["psi"], expected.psi, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found["ks"], expected.ks, rtol=1e-5)
    np.testing.assert_allclose(found["missing"], expected.missing, rtol=1e-5)
    assert found["rows"] == [200, 400, 600, 800, 1000, 1200]
    text = daes("drift", clicks, "--segments", "6", "--exclude", "id").stdout
    assert "1,200 rows in 6 segments" in text
    assert "price" in text


def test_a_name_with_a_line_end_stays_on_its_line(daes, clicks, tmp_path):
    path = tmp_path / "clicks.parquet"
    pq.write_table(pq.read_table(clicks, columns=["click", "price"]).rename_columns(["click", "pri\nce"]), path)
    assert "\npri\\nce " in daes("drift", path, "--segments", "2").stdout


def test_a_file_of_unknown_length_is_counted_first(daes, clicks, tmp_path):
    path = tmp_path / "clicks.csv"
    pyarrow.csv.write_csv(pq.read_table(clicks), path)
    arguments = ("--segments", "6", "--exclude", "id", "--json")
    counted, known = daes("drift", path, *arguments).json, daes("drift", clicks, *arguments).json
    assert counted["columns"] == known["columns"]
    assert daes("drift", path, *arguments, "--limit", "600").json["rows"] == 600


def test_rows_that_are_left_out_do_not_count(daes, refused, tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("click,price\n" + "".join(f"0,{number if number % 40 else 'x'}\n" for number in range(1, 401)))
    arguments = ("drift", path, "--numerical", "price", "--segments", "3")
    assert "row 40 of" in refused(*arguments)
    result = daes(*arguments, "--bad-rows", "skip")
    assert "390 rows in 3 segments" in result.stdout
    assert "10 bad rows left out, first: row 40 of" in result.stderr


def test_a_page_to_look_at(daes, refused, clicks, tmp_path):
    result = daes("drift", clicks, "--segments", "6", "--exclude", "id", "--plot", tmp_path / "drift [new].html")
    assert result.exit_code == 0, result.output
    assert f"wrote {tmp_path}/drift [new].html\n" in result.stderr
    page = (tmp_path / "drift [new].html").read_text()
    assert "price" in page
    assert "<script" in page
    assert "--plot must end in .html" in refused("drift", clicks, "--plot", tmp_path / "drift.png")
    assert "a folder that exists" in refused("drift", clicks, "--plot", tmp_path / "no" / "drift.html")


def test_wrong_input_is_one_sentence(refused, clicks):
    assert "segments must lie between 2 and the number of rows" in refused("drift", clicks, "--segments", "5000")
    assert "at least 2 is needed, got 1" in refused("drift", clicks, "--segments", "1")
    assert "there is no numerical column" in refused("drift", clicks, "--exclude", "price,age,id,click")
