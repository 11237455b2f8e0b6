"""Files on a web server, read by HTTP range requests with the standard library only."""

import io
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from daes.stream.arrow import fs, pa

_TIMEOUT = 60.0
_BUFFER = 1 << 20
_ATTEMPTS = 3


class WebFile(io.RawIOBase):
    """A file behind an http:// or https:// URL, readable and seekable.

    Sequential reading uses a single response. A seek requests the rest from there; if the server does not support
    ranges, it sends the whole file again and the start is discarded. A broken connection is resumed where it broke.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self._position = 0
        self._response: Any = None
        with _request(url, method="HEAD") as response:
            length = response.headers.get("Content-Length")
        if length is None:
            raise OSError(f"the server does not say how long {url} is")
        self._size = int(length)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        position = max(0, start + offset)
        if position != self._position:
            self._disconnect()
            self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(0, self._size - self._position)]
        for _ in range(_ATTEMPTS if view else 0):
            if self._response is None:
                self._response = self._request_from(self._position)
            try:
                count: int = self._response.readinto(view)
            except OSError:
                count = 0
            if count:
                self._position += count
                return count
            self._disconnect()
        if view:
            raise OSError(f"{self.url} breaks off after {self._position} of {self._size} bytes")
        return 0

    def _request_from(self, position: int) -> Any:
        response = _request(self.url, headers={"Range": f"bytes={position}-"} if position else {})
        if position and response.status != 206:
            left = position
            while left and (piece := response.read(min(left, _BUFFER))):
                left -= len(piece)
        return response

    def _disconnect(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None

    def close(self) -> None:
        self._disconnect()
        super().close()


def _request(url: str, **options: Any) -> Any:
    try:
        return urlopen(Request(url, **options), timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise FileNotFoundError(f"there is no file {url}") from error
        raise OSError(str(error)) from error
    except URLError as error:
        raise OSError(getattr(error.reason, "strerror", None) or str(error.reason)) from error


def web_filesystem() -> Any:
    """A pyarrow FileSystem whose paths are http:// and https:// URLs of single files."""
    base: Any = fs.FileSystemHandler

    class Handler(base):  # type: ignore[misc]
        def get_type_name(self) -> str:
            return "web"

        def normalize_path(self, path: str) -> str:
            return path

        def get_file_info(self, paths: list[str]) -> list[Any]:
            infos = []
            for path in paths:
                try:
                    with WebFile(path) as file:
                        infos.append(fs.FileInfo(path, fs.FileType.File, size=file.seek(0, io.SEEK_END)))
                except FileNotFoundError:
                    infos.append(fs.FileInfo(path, fs.FileType.NotFound))
            return infos

        def open_input_file(self, path: str) -> Any:
            return pa.PythonFile(io.BufferedReader(WebFile(path), _BUFFER), mode="r")

        open_input_stream = open_input_file

        def _refuse(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("a web server's files can only be read, one by one")

        get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
        delete_root_dir_contents = delete_file = move = copy_file = _refuse
        open_output_stream = open_append_stream = _refuse

    return fs.PyFileSystem(Handler())
