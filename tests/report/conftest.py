"""A headless Chromium, driven over its debugging pipe with nothing but the standard library."""

import base64
import json
import os
import shutil
import signal
from collections.abc import Iterator
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Self

import numpy as np
import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Chromium:
    """One browser process with one page.

    `--remote-debugging-pipe` speaks the DevTools protocol over file descriptors 3 and 4: JSON texts, each ended by a
    zero byte. So neither a driver nor a WebSocket is needed.
    """

    def __init__(self, program: str) -> None:
        self._profile = TemporaryDirectory(prefix="daes-chromium-", ignore_cleanup_errors=True)
        commands, self._commands = _pipe()
        self._answers, answers = _pipe()
        flags = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars "
            "--disable-extensions --disable-background-networking --disable-component-update --disable-sync "
            "--metrics-recording-only --mute-audio --remote-debugging-pipe"
        )
        self._process = os.posix_spawn(
            program,
            [program, *flags.split(), f"--user-data-dir={self._profile.name}", "about:blank"],
            os.environ,
            file_actions=[
                *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, commands, 3),
                (os.POSIX_SPAWN_DUP2, answers, 4),
            ],
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, timeout: float = 60, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end = monotonic() + timeout
        while True:
            answer = self._receive(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select([self._answers], [], [], max(0.0, end - monotonic()))
            more = os.read(self._answers, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("chromium does not answer")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = ""
    ) -> Self:
        """Load a file or an address and wait until it says that all is drawn; what was logged before is forgotten."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.prefer(dark=dark, media=media)
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        end = monotonic() + 60
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(end))
        self.evaluate(
            "new Promise(done => { const look = () => document.documentElement.dataset.drawn ? done(true)"
            " : setTimeout(look, 20); look(); })"
        )
        return self

    def prefer(self, *, dark: bool, media: str = "") -> None:
        """Set what `prefers-color-scheme` and the medium are."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings that the page gave rise to since it was opened, exceptions included."""
        self.evaluate("new Promise(done => setTimeout(done, 50))")
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(parameters["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                    found.append(str(parameters["args"]))
                case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                    found.append(parameters["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        sent = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the whole page, or of what is in view."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def close(self) -> None:
        """End the process."""
        self._session = None
        try:
            self.send("Browser.close", timeout=10)
            ended = _wait(self._process, 10)
        except (RuntimeError, OSError):
            ended = False
        if not ended:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not among the descriptors that the browser is given."""
    ends = os.pipe()
    moved = tuple(fcntl(end, F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _wait(process: int, seconds: float) -> bool:
    """Whether the process ended in time."""
    end = monotonic() + seconds
    while monotonic() < end:
        if os.waitpid(process, os.WNOHANG)[0]:
            return True
        sleep(0.05)
    return False


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"no browser to open the page in: none of {', '.join(_NAMES)} is installed")
    browser = Chromium(program)
    yield browser
    browser.close()


HOSTILE = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=2">',
    "<a href='javascript:window.hacked=3'>price</a>",
    "%{y} $x^2$ @c1",
    "</script><b>&amp;</b>",
    "a name that is much longer than any axis has room for, whatever the width of the screen may be",
    "a_name_of_one_word_" * 15,
)


@pytest.fixture(scope="session")
def hostile_names() -> tuple[str, ...]:
    return HOSTILE


def make_run(folder: Path, what: Any, *, batch_size: int = 200, schema: Any = None, **model: Any) -> Path:
    """A small run, without its page."""
    from daes.stream.dataset import Dataset
    from daes.training.config import TrainConfig
    from daes.training.run import train_run

    data = Dataset.open(what, schema=schema)
    config = TrainConfig(batch_size=batch_size, window=1000)
    train_run(data, folder, model={"backbone": "fnn", **model}, config=config, prefetch=0)
    return folder


def make_table(rows: int = 1500, names: tuple[str, ...] = ("price", "age", "bid"), *, click_rate: float = 0.3) -> Any:
    """Numbers that drift, and their categories, with a label that depends on them."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for place, name in enumerate(names):
        values = rng.lognormal(np.linspace(0, place, rows), 1.0)
        columns[name] = np.where(rng.random(rows) < 0.05 * place, np.nan, values)
    columns["city"] = rng.choice(["Bern", "<b>Rome</b>", "Ulm"], rows)
    columns["hour"] = rng.integers(0, 24, rows).astype(str)
    columns["click"] = (rng.random(rows) < click_rate).astype(np.int64)
    return pa.table(columns)


@pytest.fixture(scope="session")
def gate_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("gate") / "run", "adstream:4000", embedding="daes-gate")


@pytest.fixture(scope="session")
def fe_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("fe") / "run", make_table(), embedding="fe")


@pytest.fixture(scope="session")
def dlrm_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("dlrm") / "run", make_table(), embedding="dlrm")


@pytest.fixture(scope="session")
def numbers_only_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from daes.stream.schema import Schema

    schema = Schema("click", ("price", "age", "bid"), ())
    return make_run(tmp_path_factory.mktemp("numbers") / "run", make_table(), schema=schema, embedding="daes")


@pytest.fixture(scope="session")
def categories_only_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from daes.stream.schema import Schema

    schema = Schema("click", (), ("city", "hour"))
    return make_run(tmp_path_factory.mktemp("categories") / "run", make_table(), schema=schema)


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("short") / "run", make_table(20), embedding="daes")


@pytest.fixture(scope="session")
def one_class_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("class") / "run", make_table(click_rate=0.0), embedding="daes-tran")


@pytest.fixture(scope="session")
def odd_columns_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A constant column, one without any value, one with infinities."""
    import pyarrow as pa

    table = make_table()
    rows = table.num_rows
    infinite = np.where(np.arange(rows) % 7 == 0, np.inf, np.arange(rows, dtype=np.float64))
    for name, values in (("constant", np.full(rows, 3.0)), ("void", np.full(rows, np.nan)), ("endless", infinite)):
        table = table.append_column(name, pa.array(values))
    return make_run(tmp_path_factory.mktemp("odd") / "run", table, embedding="daes")


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = make_table(names=HOSTILE).rename_columns([*HOSTILE, "city", "<i onclick=hacked()>hour</i>", "click"])
    return make_run(tmp_path_factory.mktemp("hostile") / "run", table, embedding="daes-gate")


@pytest.fixture(scope="session")
def comparison_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from daes.experiments.compare import compare
    from daes.training.config import TrainConfig

    folder = tmp_path_factory.mktemp("comparison")
    train = TrainConfig(batch_size=200, window=1000)
    compare("adstream:3000", methods=["fe", "ple", "daes"], backbones=["fnn", "lr"], seeds=2, train=train, out=folder)
    return folder


@pytest.fixture(scope="session")
def paper_comparison_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from daes.experiments.compare import compare
    from daes.training.config import TrainConfig
    from daes.training.offline import OfflineConfig

    folder = tmp_path_factory.mktemp("paper")
    compare(
        "adstream:3000",
        methods=["fe", "daes"],
        backbones=["fnn"],
        seeds=1,
        protocol="paper",
        train=TrainConfig(batch_size=500),
        offline=OfflineConfig(epochs=2),
        out=folder,
    )
    return folder


@pytest.fixture(scope="session")
def wide_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = make_table(1200, tuple(f"feature_{place}" for place in range(75)))
    return make_run(tmp_path_factory.mktemp("wide") / "run", table, embedding="daes")
