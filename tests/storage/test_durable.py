"""Whole files or the old ones: after errors, full disks and kills at any byte."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from daes.storage.durable import remove_temporary_files, replacing, sync_directory, write_bytes, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    return path


class TestWriting:
    def test_bytes(self, tmp_path):
        content = bytes(range(256)) * 1000
        write_bytes(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
        assert names(tmp_path) == ["file"]

    def test_text_is_utf8_with_its_own_line_ends(self, tmp_path):
        write_text(str(tmp_path / "größe.txt"), "1 €\n2\r\n")
        assert (tmp_path / "größe.txt").read_bytes() == b"1 \xe2\x82\xac\n2\r\n"

    def test_what_was_there_is_replaced(self, old):
        write_text(old, "")
        assert old.read_bytes() == b""
        assert names(old.parent) == ["file"]

    def test_a_writer_may_go_back(self, old):
        with replacing(old) as file:
            file.write(b"??? and more")
            file.seek(0)
            file.write(b"new")
        assert old.read_bytes() == b"new and more"

    def test_readers_see_the_old_content_until_the_end(self, old):
        with replacing(old) as file:
            file.write(b"new")
            file.flush()
            assert old.read_bytes() == b"old"
        assert old.read_bytes() == b"new"

    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
    def test_permissions_follow_the_umask(self, tmp_path, umask, mode):
        before = os.umask(umask)
        try:
            write_text(tmp_path / "file", "x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode

    def test_a_name_without_a_folder_is_in_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_text("file", "x")
        assert names(tmp_path) == ["file"]

    def test_file_then_name_then_folder_are_made_durable(self, old, monkeypatch):
        log = []
        real = os.fsync

        def fsync(number):
            kind = "folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file"
            log.append((kind, os.fstat(number).st_size if kind == "file" else None, old.read_bytes()))
            real(number)

        monkeypatch.setattr(os, "fsync", fsync)
        write_bytes(old, b"newer")
        assert log == [("file", 5, b"old"), ("folder", None, b"newer")]

    @pytest.mark.parametrize("follow", [False, True])
    def test_a_link_or_what_it_points_to_is_replaced(self, old, follow):
        folder = old.parent / "folder"
        folder.mkdir()
        link, far = folder / "link", folder / "far"
        far.symlink_to("../file")
        link.symlink_to("far")
        with replacing(link, follow_symlinks=follow) as file:
            file.write(b"new")
        assert (link.read_bytes(), old.read_bytes()) == (b"new", b"new" if follow else b"old")
        assert link.is_symlink() == follow
        assert (names(folder), names(old.parent)) == (["far", "link"], ["file", "folder"])

    def test_a_link_to_a_file_that_is_not_there_yet(self, tmp_path):
        (tmp_path / "link").symlink_to("file")
        with replacing(tmp_path / "link", follow_symlinks=True) as file:
            file.write(b"new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"new"
        (tmp_path / "other").symlink_to("no/file")
        with (
            pytest.raises(FileNotFoundError, match=rf"^there is no folder {tmp_path}/no to write file to$"),
            replacing(tmp_path / "other", follow_symlinks=True),
        ):
            pass

    def test_writers_at_the_same_time_do_not_mix(self, tmp_path):
        path = tmp_path / "file"
        contents = [bytes([letter]) * 50_000 for letter in b"abcd"]
        errors = []

        def write(content):
            try:
                for _ in range(5):
                    write_bytes(path, content)
                    assert path.read_bytes() in contents
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(content,)) for content in contents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert path.read_bytes() in contents
        assert names(tmp_path) == ["file"]


class TestTrouble:
    @pytest.mark.parametrize("kind", [ValueError, OSError, KeyboardInterrupt, SystemExit])
    def test_an_error_of_the_writer_leaves_the_old_file_and_nothing_else(self, old, kind):
        def write():
            with replacing(old) as file:
                file.write(b"half")
                raise kind("stopped")

        with pytest.raises(kind, match="stopped"):
            write()
        assert old.read_bytes() == b"old"
        assert names(old.parent) == ["file"]

    def test_an_error_where_there_was_no_file_leaves_none(self, tmp_path):
        with pytest.raises(TypeError):
            write_bytes(tmp_path / "file", "text")
        assert names(tmp_path) == []

    def test_a_text_that_has_no_bytes(self, old):
        with pytest.raises(UnicodeEncodeError):
            write_text(old, "\ud800")
        assert old.read_bytes() == b"old"

    @pytest.mark.parametrize("size", [3000, 300_000])  # noticed by the flush, by the write
    def test_no_room_leaves_the_old_file_and_nothing_else(self, old, size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(OSError) as caught:  # noqa: PT011
                write_bytes(old, b"x" * size)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert caught.value.errno == errno.EFBIG
        assert caught.value.filename == str(old)
        assert old.read_bytes() == b"old"
        assert names(old.parent) == ["file"]

    def test_an_error_stays_the_one_reported_when_cleaning_up_fails_too(self, old, monkeypatch):
        def fail(*_, **__):
            raise OSError(errno.EIO, "cleaning up")

        monkeypatch.setattr(Path, "unlink", fail)
        with pytest.raises(TypeError):
            write_bytes(old, None)
        assert old.read_bytes() == b"old"

    def test_a_folder_that_does_not_exist(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=rf"^there is no folder {tmp_path}/nosuch to write file to$"):
            write_text(tmp_path / "nosuch" / "file", "x")
        assert names(tmp_path) == []

    def test_a_file_in_the_place_of_the_folder(self, old):
        with pytest.raises(FileNotFoundError, match=rf"^there is no folder {old} to write file to$"):
            write_text(old / "file", "x")

    def test_a_folder_in_the_place_of_the_file(self, tmp_path):
        (tmp_path / "taken").mkdir()
        with pytest.raises(IsADirectoryError, match=rf"Is a directory: '{tmp_path}/taken'$"):
            write_text(tmp_path / "taken", "x")
        assert names(tmp_path) == ["taken"]

    def test_a_folder_that_must_not_be_written_to(self, old, monkeypatch):
        def refuse(path, *_):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(PermissionError, match=rf"Permission denied: '{old}'$"):
            write_text(old, "x")

    def test_a_temporary_file_of_another_writer_is_left_to_it(self, old, monkeypatch):
        monkeypatch.setattr("secrets.token_hex", lambda _: "0123abcd")
        other = old.with_name(".file.0123abcd.tmp")
        other.write_text("of another")
        with pytest.raises(FileExistsError, match=rf"'{old}'$"):
            write_text(old, "x")
        assert other.read_text() == "of another"


class TestFolders:
    @pytest.fixture
    def answer(self, monkeypatch):
        def answer(code):
            def fsync(number):
                if stat.S_ISDIR(os.fstat(number).st_mode):
                    raise OSError(code, os.strerror(code))

            monkeypatch.setattr(os, "fsync", fsync)

        return answer

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
    def test_file_systems_that_cannot_sync_a_folder(self, old, answer, code):
        answer(code)
        write_text(old, "new")
        assert old.read_text() == "new"

    def test_a_failed_sync_of_the_folder_is_an_error_after_the_fact(self, old, answer):
        answer(errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            write_text(old, "new")
        assert old.read_text() == "new"
        assert names(old.parent) == ["file"]

    def test_a_platform_that_opens_no_folders(self, old, monkeypatch):
        monkeypatch.delattr(os, "O_DIRECTORY")
        monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opens a folder"))
        sync_directory(old.parent)

    def test_no_descriptor_is_left_open(self, old, answer):
        before = len(names(Path("/dev/fd")))
        answer(errno.EIO)
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                write_text(old, "new")
        assert len(names(Path("/dev/fd"))) == before


class TestLeftovers:
    def test_those_asked_for_go(self, tmp_path):
        for name in (
            "file",
            ".file.0123abcd.tmp",
            ".file.89ef0000.tmp",
            ".other.0123abcd.tmp",
            ".file.tmp",
            ".file.xyz.tmp",
        ):
            (tmp_path / name).write_text("")
        remove_temporary_files(tmp_path, lambda name: name == "file")
        assert names(tmp_path) == sorted(["file", ".other.0123abcd.tmp", ".file.tmp", ".file.xyz.tmp"])

    def test_no_folder_has_none(self, tmp_path):
        remove_temporary_files(tmp_path / "nosuch", lambda _: True)


KILLED = """
import os, signal, sys
from daes.storage.durable import replacing

path, when = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if when == "rename":
    os.replace = os.rename = die
if when == "fsync":
    os.fsync = die
with replacing(path) as file:
    file.write(b"new " * 100_000)
    if when == "write":
        die()
    file.write(b"end")
"""


@pytest.mark.parametrize("when", ["write", "fsync", "rename"])
def test_a_kill_leaves_the_old_content(old, when):
    run = subprocess.run([sys.executable, "-c", KILLED, str(old), when], capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert old.read_bytes() == b"old"
    # What the killed one leaves is found and removed, and in nobody's way until then.
    assert len(names(old.parent)) == 2
    write_bytes(old, b"newer")
    remove_temporary_files(old.parent, lambda name: name == "file")
    assert names(old.parent) == ["file"]
    assert old.read_bytes() == b"newer"


def test_a_writer_that_is_not_killed_gets_to_the_end(old):
    run = subprocess.run([sys.executable, "-c", KILLED, str(old), "never"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert old.read_bytes() == b"new " * 100_000 + b"end"
