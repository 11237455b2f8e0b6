"""The options of commands that read data: where the rows are, how to read them, what their columns mean."""

import atexit
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daes.cli.options import NAMES, Kind, Names, matching, one_of, option_field, whole_number
from daes.cli.settings import given_options

if TYPE_CHECKING:
    from daes.stream.dataset import Dataset

STDIN = "-"
DATA_HELP = (
    "A Parquet or CSV file (.csv, .tsv, also .gz and .zst), a glob, a folder or a URL of such files, or a dataset: "
    "`flights`, `adstream` (or `adstream:ROWS`), `criteo:PATH`, `automl:PATH`. `-` is standard input, read to its "
    "end first. `daes train` also reads topics: `nats://HOST/STREAM`, `kafka://HOST/TOPIC`."
)
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
CSV_OPTIONS = ("separator", "decimal", "missing", "missing_categories", "header", "column_names", "quoting")
"""The options of `Dataset.open` that say what the text of CSV files means."""
_PLAIN_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}
_reading = partial(option_field, panel="Reading")
_columns = partial(option_field, panel="Columns")


def character(text: str) -> str:
    """Parse a separator: one character."""
    found = {"\\t": "\t"}.get(text, text)
    if len(found) != 1 or not found.isascii():
        raise typer.BadParameter(f"one ASCII character is needed, got {text!r}")
    return found


@dataclass(frozen=True)
class Reading:
    """How to read. For a trained model, what a text means is by default what it meant in training."""

    limit: int | None = _reading("Read at most this many rows.", of=whole_number(1, "ROWS"))
    format: str | None = _reading("parquet or csv, if file names do not tell.", of=one_of("parquet", "csv"))
    separator: str | None = _reading("Field separator of CSV files; \\t is a tab.", of=Kind(character, "CHAR"))
    decimal: str | None = _reading("Decimal mark of CSV files: . or ,", of=one_of(".", ",", metavar="CHAR"))
    missing: Names | None = _reading("Additional texts that mean a missing value in CSV files.", of=NAMES)
    no_header: bool | None = _reading(
        "CSV files have no header: the columns are column_1, column_2, …", "--no-header/--header"
    )
    column_names: Names | None = _reading(
        "Names of the columns of CSV files without a header. A first row of such names is not read as values.",
        "--names",
        of=NAMES,
    )
    no_quotes: bool | None = _reading(
        'A " in CSV files is an ordinary character and does not enclose a field.', "--no-quotes/--quotes"
    )
    label_map: list[str] = _reading(
        "Meaning of a label that is not 0 or 1, such as yes=1. May be repeated; every label must then be listed.",
        default=[],
        of=matching(r"(?s).+=[01]", "TEXT=0 or TEXT=1", "TEXT=0|1"),
    )
    bad_rows: str | None = _reading(
        "Rows that cannot be read (an invalid number, a label that is neither 0 nor 1, …): error (stop and name "
        "the row) or skip (leave them out and list them).",
        of=one_of("error", "skip", metavar="POLICY"),
        show_default="error",
    )

    def options(self) -> dict[str, Any]:
        """Options of `Dataset.open`, those that were given."""
        plain = ("limit", "format", "separator", "decimal", "column_names", "bad_rows")
        options = given_options({name: getattr(self, name) for name in plain})
        if self.missing is not None:
            from daes.stream.csv_text import MISSING

            options |= {"missing": (*MISSING, *self.missing), "missing_categories": ("", *self.missing)}
        if self.no_header:
            options["header"] = False
        if self.no_quotes:
            options["quoting"] = False
        if self.label_map:
            meanings = [(pair[:-2], int(pair[-1])) for pair in self.label_map]
            options["label_map"] = dict(meanings)
            if len(options["label_map"]) < len(set(meanings)):
                raise ValueError(f"--label-map must give each text one meaning, got {' '.join(self.label_map)}")
        return options

    def open(
        self, what: str, *, live: bool = False, trained: Mapping[str, Any] | None = None, **more: Any
    ) -> "Dataset":
        """Open the data.

        Args:
            what: DATA, as it was given.
            live: whether it may be a topic, which has no last row to wait for.
            trained: how the run whose model reads the data has read its own: options of `Dataset.open`. Those that say
                what a text means hold here too, unless they are given again.
            more: further options of `Dataset.open`.
        """
        from daes.stream.broker_url import is_broker
        from daes.stream.dataset import Dataset

        if is_broker(what) and not live:
            raise ValueError(f"a topic has no end and only `daes train` reads it, got {what}")
        options, where = self.options(), what
        if what == STDIN:
            where, format = _standard_input()
            options.setdefault("format", format)
        if trained:
            options = self._of_training(trained, where, options, follow=more.get("follow", False)) | options
        return Dataset.open(where, **options, **more)

    def _of_training(
        self, trained: Mapping[str, Any], where: Any, given: Mapping[str, Any], *, follow: bool
    ) -> dict[str, Any]:
        """The options of training that hold for these data as well."""
        from daes.stream.broker_url import is_broker
        from daes.stream.datasets import find_entry
        from daes.stream.opening import reads_csv

        if is_broker(where) or find_entry(where) is not None:
            return {}
        csv = follow or reads_csv(where, given.get("format"))
        kept = {"label_map", *(CSV_OPTIONS if csv else ())}
        if self.no_header is False:
            kept -= {"header", "column_names"}
        if self.no_quotes is False:
            kept -= {"quoting"}
        if {".tsv", ".tab", ".psv"}.intersection(Path(str(where)).suffixes):  # the name of the file tells it
            kept -= {"separator"}
        options = {name: value for name, value in trained.items() if name in kept}
        if "label_map" in options:  # other labels of this model may need no map
            options["label_map"] = _PLAIN_LABELS | options["label_map"]
        return options


def data_name(what: str) -> str:
    """DATA in messages."""
    return "standard input" if what == STDIN else what


def _standard_input() -> tuple[Any, str]:
    """A file with a copy of standard input, since data are read more than once, and its format."""
    from daes.stream.arrow import fs
    from daes.stream.csv_text import COMPRESSED
    from daes.stream.files import DataFile

    if sys.stdin is None:
        raise ValueError("standard input is closed")
    folder = tempfile.mkdtemp(prefix="daes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit_by_signal)  # otherwise the copy would stay
    start = sys.stdin.buffer.read(4)
    endings = (ending for beginning, (_, ending) in COMPRESSED.items() if start.startswith(beginning))
    name = data_name(STDIN) + next(endings, "")
    try:
        with Path(folder, name).open("wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        what = f"standard input could not be copied to {folder} (TMPDIR names another place)"
        raise OSError(error.errno, f"{what}: {error.strerror}") from error
    # Relative to the folder, so that messages name it as the user knows it.
    found = DataFile(fs.SubTreeFileSystem(folder, fs.LocalFileSystem()), name)
    return found, "parquet" if start == b"PAR1" else "csv"


def _exit_by_signal(number: int, frame: FrameType | None) -> None:
    """End the process as a signal would, but with what `atexit` does at its end."""
    sys.exit(128 + number)


@dataclass(frozen=True)
class Columns:
    """What the columns mean."""

    label: str | None = _columns("The label column: 1 for a click, 0 for none.", metavar="NAME")
    numerical: Names | None = _columns("The numerical features.", of=NAMES)
    categorical: Names | None = _columns("The categorical features; numbers may be among them.", of=NAMES)
    time: str | None = _columns("The column that orders the stream; rows out of order are sorted.", metavar="NAME")
    weight: str | None = _columns("The column of sample weights.", metavar="NAME")
    exclude: Names | None = _columns("Columns to ignore.", of=NAMES)
    schema: str | None = _columns(
        "All of the above as JSON, like `schema` in a run's config.json; nothing is inferred then.",
        of=Kind(lambda text: str(Path(text).absolute()), "FILE"),  # a run may be resumed from another folder
    )

    @property
    def named(self) -> set[str]:
        """All columns that these options name."""
        listed = (*(self.numerical or ()), *(self.categorical or ()), *(self.exclude or ()))
        return {name for name in (*listed, self.label, self.time, self.weight) if name is not None}

    def open(self, what: str, reading: Reading, **more: Any) -> "Dataset":
        """Open the data, its columns named here or inferred, with further options of `Reading.open`."""
        if self.schema is None:
            return reading.open(what, **given_options(vars(self)), **more)
        if self.named:
            raise ValueError(f"--schema names all columns: no others may be named, got {', '.join(sorted(self.named))}")
        from daes.stream.schema import Schema

        try:
            schema = Schema.from_json(Path(self.schema).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.schema}: {error}") from error
        return reading.open(what, schema=schema, **more)
