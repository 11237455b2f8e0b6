"""The files that a path, a glob, a directory or a URL stands for."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from daes.extras import require
from daes.stream.arrow import fs, pa
from daes.stream.cursor import SourceError
from daes.stream.web import web_filesystem

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_MAGIC = re.compile(r"[*?\[]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_KNOWN = ("file://", "http://", "https://", "s3://", "gs://", "abfs://", "hdfs://")
_GOOGLE_SECONDS = 60
_SHOWN = 300


@dataclass(frozen=True)
class DataFile:
    """One file: its pyarrow filesystem, its path there, and its Hive partitions (key=value directories)."""

    filesystem: Any
    path: str
    partitions: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        path = urlsplit(self.path).path if _is_web(self.path) else self.path
        return path.rpartition("/")[2]

    @property
    def absolute(self) -> str:
        """The path that is valid in every working directory."""
        local = isinstance(self.filesystem, fs.LocalFileSystem)
        return str(Path(self.path).absolute()) if local else self.path

    @property
    def compression(self) -> str | None:
        """How the file is compressed, by its name."""
        return COMPRESSIONS.get(Path(self.name).suffix.lower())

    def open(self) -> Any:
        """The file, which must be uncompressed, for random access."""
        return self.filesystem.open_input_file(self.path)

    @property
    def suffix(self) -> str:
        """The file extension that determines the format, in lower case: `.csv` of `DAY.CSV.gz`."""
        path = Path(self.name)
        return (path.with_suffix("") if self.compression else path).suffix.lower()


Where = str | Path | DataFile | Sequence[str | Path | DataFile]
"""What names files; a DataFile is one that was found before."""


def find_files(where: Where, suffixes: tuple[str, ...] = (), *, waiting: bool = False) -> list[DataFile]:
    """The files that `where` stands for, in order; it is an error if there are none.

    - A file is itself. A sequence keeps its order.
    - The files of a glob (`*`, `?`, `[…]` within one directory, `**` across directories) and of a directory (searched
      recursively for names that end in `suffixes`, without those that start with `_` or `.`) come in natural order:
      day_2 before day_10. Below the directory, or below the first part of the path that has a wildcard, `key=value`
      directories are columns. A link to another of these files is left out, with a warning; a link to nothing is an
      error, or with `waiting`, if further files may come, a warning.
    - URLs: `file://`; `http://` and `https://`, of single files; `s3://`, `gs://`, `hdfs://` and others that pyarrow.fs
      knows; others through fsspec if it is installed and knows them.
    """
    if isinstance(where, DataFile):
        return [where]
    if not isinstance(where, str | Path):
        if not where:
            raise ValueError(f"at least one path is needed, got {where!r}")
        return [file for one in where for file in find_files(one, suffixes, waiting=waiting)]
    filesystem, path = _filesystem(where)
    with _reaching(where):
        kind = filesystem.get_file_info(path).type
        if kind == fs.FileType.File:
            return [DataFile(filesystem, path)]
        if kind == fs.FileType.Directory:
            nothing = f"there is no file in the directory {where}"
            listed = _list(filesystem, path.rstrip("/") or "/", "**", nothing, waiting)
            chosen = [file for file in listed if not suffixes or file.suffix in suffixes]
            if not chosen:
                raise FileNotFoundError(f"no file in the directory {where} ends in {' or '.join(suffixes)}")
            return chosen
        if kind == fs.FileType.Unknown:
            raise SourceError(f"{where} is neither a file nor a folder; a pipe can be read as standard input, -")
        if _MAGIC.search(path) and not _is_web(path):
            parts = path.split("/")
            first = next(number for number, part in enumerate(parts) if _MAGIC.search(part))
            base, pattern = "/".join(parts[:first]), "/".join(parts[first:])
            base = base or ("/" if path.startswith("/") else ".")
            return _list(filesystem, base, pattern, f"no file matches {where}", waiting)
    raise FileNotFoundError(f"there is no file {where}")


def is_directory_or_glob(where: str | Path) -> bool:
    """Whether a path or URL is a directory or a glob, whose files may change; an error if there is nothing.

    A bucket has no empty directories: there, a URL that ends in `/` is a directory without files as yet.
    """
    filesystem, path = _filesystem(where)
    with _reaching(where):
        kind = filesystem.get_file_info(path).type
    if kind == fs.FileType.NotFound and not _is_web(path):
        local = isinstance(filesystem, fs.LocalFileSystem)
        if _MAGIC.search(path) or (not local and urlsplit(str(where)).path.endswith("/")):
            return True
    if kind == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is no folder {where}")
    return bool(kind == fs.FileType.Directory)


def _filesystem(where: str | Path) -> tuple[Any, str]:
    text = str(where)
    if not text:
        raise ValueError("a path must not be empty, got ''")
    scheme = urlsplit(text).scheme if "://" in text else ""
    if isinstance(where, Path) or not scheme:
        return fs.LocalFileSystem(), Path(where).expanduser().as_posix()
    if scheme == "file":
        return fs.LocalFileSystem(), Path(url2pathname(re.sub("^file://(localhost)?", "", text))).as_posix()
    if _is_web(text):
        return web_filesystem(), text
    query = ""
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in text:
        # By default, the client tries for a quarter of an hour, also if it finds no login.
        query = f"{'&' if '?' in text else '?'}retry_limit_seconds={_GOOGLE_SECONDS}"
    with _reaching(text):
        try:
            filesystem, path = fs.FileSystem.from_uri(text + query)
            return filesystem, path
        except (ImportError, pa.ArrowNotImplementedError):
            pass  # this build of pyarrow does not have it
        except pa.ArrowInvalid as error:
            if "Unrecognized filesystem type" not in str(error):
                raise
    return _fsspec_filesystem(text, scheme)


def _fsspec_filesystem(url: str, scheme: str) -> tuple[Any, str]:
    try:
        fsspec = require("fsspec")
        known = scheme in fsspec.available_protocols()
        filesystem, path = fsspec.core.url_to_fs(url) if known else (None, "")
    except ImportError as error:
        raise SourceError(
            f"{url} cannot be read: {_reason(error)}; otherwise copy the files to a local disk"
        ) from error
    except Exception as error:  # file systems connect here, each with errors of its own
        raise SourceError(f"{url} cannot be reached: {_reason(error)}") from error
    if not known:
        raise SourceError(f"{url} cannot be read: {scheme}:// is not known; use a path or one of {', '.join(_KNOWN)}")
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


@contextmanager
def _reaching(where: str | Path) -> Iterator[None]:
    """Within it, an error of a file system, except for a file that is not there, is a sentence with the address."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{where} cannot be reached: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line of an error."""
    text = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    line = text.splitlines()[0].rstrip(".:")
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def _is_web(path: str) -> bool:
    return path.startswith(("http://", "https://"))


def _list(filesystem: Any, base: str, pattern: str, nothing: str, waiting: bool) -> list[DataFile]:
    deep = "/" in pattern or "**" in pattern
    selector = fs.FileSelector(base, recursive=deep, allow_not_found=True)
    accept = _glob(pattern)
    prefix = "" if base == "." else base.rstrip("/") + "/"

    def matching(path: str) -> str | None:
        """The path below the base, if it matches the pattern."""
        below = path.removeprefix("./").removeprefix(prefix)
        hidden = pattern == "**" and any(part.startswith(("_", ".")) for part in below.split("/"))
        return below if accept.fullmatch(below) and not hidden else None

    found = {}
    for info in filesystem.get_file_info(selector):
        if info.type == fs.FileType.File and (below := matching(info.path)) is not None:
            found[below] = DataFile(filesystem, info.path, _partitions(below))
    if isinstance(filesystem, fs.LocalFileSystem):  # which does not list broken links
        for path in Path(base).glob("**/*" if deep else "*"):
            if path.is_symlink() and not path.exists() and matching(path.as_posix()) is not None:
                if not waiting:
                    raise FileNotFoundError(f"{path} is a link to a file that is not there")
                warnings.warn(f"{path} is a link to a file that is not there", stacklevel=2)
        if links := [found.pop(name).path for name in _links_to_others(found, base)]:
            more = f" and {len(links) - 1:,} more" if len(links) > 1 else ""
            warnings.warn(f"links to files that are read anyway are left out: {links[0]}{more}", stacklevel=2)
    if not found:
        raise FileNotFoundError(nothing)
    return [found[below] for below in sorted(found, key=natural_order)]


def _links_to_others(files: Mapping[str, DataFile], base: str) -> list[str]:
    """The names of local files, below the base, that are links to others of them, or in a linked folder."""
    same: dict[tuple[int, int], list[str]] = {}
    for name, file in files.items():
        with suppress(FileNotFoundError):
            status = Path(file.path).stat()
            same.setdefault((status.st_dev, status.st_ino), []).append(name)
    root, links = Path(base).resolve(), []
    for names in same.values():
        if len(names) > 1:
            real = {name: Path(files[name].path).resolve() for name in names}
            own = {path for name, path in real.items() if path == root / name}
            links += [name for name, path in real.items() if path in own and path != root / name]
    return sorted(links, key=natural_order)


def _glob(pattern: str) -> re.Pattern[str]:
    out = ""
    for token in re.findall(r"\*\*/?|\*|\?|\[[^\]]+\]|.", pattern):
        if token.startswith("**"):
            out += "(?:.*/)?" if token.endswith("/") else ".*"
        elif token == "*":
            out += "[^/]*"
        elif token == "?":
            out += "[^/]"
        elif len(token) > 1:
            out += token.replace("[!", "[^")
        else:
            out += re.escape(token)
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise ValueError(f"{pattern} is not a glob: {error}") from error


def natural_order(name: str) -> tuple[list[Any], str]:
    """A sort key that compares the digits in a name as numbers.

    >>> sorted(["day_10", "day_9", "day_1"], key=natural_order)
    ['day_1', 'day_9', 'day_10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], name


def _partitions(below: str) -> dict[str, str | None]:
    pairs = [part.partition("=") for part in below.split("/")[:-1] if "=" in part]
    return {unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in pairs if key}
