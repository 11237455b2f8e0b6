import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.csv import CsvSource
from daes.stream.cursor import SourceError
from daes.stream.opening import open_source

CSV = b"a,b\n" + b"".join(b"%d,x%d\n" % (row, row) for row in range(5000))


class Handler(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}
    ranges = True
    break_after: int | None = None
    requests: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        content = self.files.get(self.path.partition("?")[0])
        if content is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        type(self).requests.append(f"{self.command} {wanted}")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        self.send_response(206 if wanted and self.ranges else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if body:
            stop = None if self.break_after is None else start + self.break_after
            self.wfile.write(content[start:stop])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [float(row) for row in range(5000)]}), sink, row_group_size=500)
    monkeypatch.setattr(Handler, "files", {"/rows.csv": CSV, "/rows.parquet": sink.getvalue().to_pybytes()})
    monkeypatch.setattr(Handler, "requests", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_files_on_a_web_server(url: str, monkeypatch: pytest.MonkeyPatch, ranges: bool) -> None:
    monkeypatch.setattr(Handler, "ranges", ranges)
    for name in ("rows.csv", "rows.parquet", "rows.csv?key=1"):
        source = open_source(f"{url}/{name}")
        values = [value for table in source.iter_tables(["a"], 999) for value in table["a"].to_pylist()]
        assert values == [float(row) for row in range(5000)]
        source.seek({"row": 4321})
        assert next(source.iter_tables(["a"], 3))["a"].to_pylist() == [4321.0, 4322.0, 4323.0]


def test_a_broken_connection_is_taken_up_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "break_after", 20_000)
    assert len(CSV) > 50_000
    (table,) = CsvSource(f"{url}/rows.csv").iter_tables(["b"], 10_000)
    assert table["b"].to_pylist() == [f"x{row}" for row in range(5000)]
    assert "GET bytes=20000-" in Handler.requests
    monkeypatch.setattr(Handler, "break_after", 0)
    with pytest.raises(SourceError, match=r"rows\.csv .*breaks off after 0 of "):
        list(CsvSource(f"{url}/rows.csv").iter_tables(["b"], 10_000))


def test_what_is_not_there(url: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file http://.*none\.csv"):
        CsvSource(f"{url}/none.csv")
    with pytest.raises(SourceError, match=r"^http://127\.0\.0\.1:1/rows\.csv cannot be reached: Connection refused$"):
        CsvSource("http://127.0.0.1:1/rows.csv")
