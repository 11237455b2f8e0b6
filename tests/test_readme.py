"""What a newcomer copies out of README.md and docs/ is what runs here.

Python blocks of README.md all run. Python blocks elsewhere, and the `$ daes …` lines of console blocks anywhere, run if
`<!-- run -->` stands before the block. Blocks of one file run in order, in one namespace and one folder.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from daes.embedding import METHODS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
MARK = "<!-- run -->"
SECONDS = 120
"""For one command; generous, because it is a safeguard against hanging and not a measurement."""

_FENCE = re.compile(r"(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)[^`]*")


@dataclass(frozen=True)
class Block:
    """A fenced block of a Markdown file; `line` is that of its first line of text."""

    path: Path
    line: int
    language: str
    text: str
    marked: bool

    @property
    def place(self) -> str:
        return f"{self.path.name}:{self.line}"

    def commands(self) -> list[str]:
        """The `$ daes …` lines, those continued by a backslash as one."""
        joined = self.text.replace("\\\n", " ")
        return [line.strip()[2:] for line in joined.splitlines() if line.strip().startswith("$ daes ")]


def read_blocks(path: Path) -> list[Block]:
    """All fenced blocks, in order."""
    blocks, before, opened, lines = [], "", None, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if opened is not None:
            found, start = opened
            if line.strip() and set(line.strip()) == {found["fence"][0]} and len(line.strip()) >= len(found["fence"]):
                text = "".join(text.removeprefix(found["indent"]) + "\n" for text in lines)
                blocks.append(Block(path, start, found["language"], text, before == MARK))
                opened, before = None, ""
            else:
                lines.append(line)
        elif found := _FENCE.fullmatch(line):
            opened, lines = (found, number + 1), []
        elif line.strip():
            assert before != MARK, f"{path.name}:{number}: {MARK} must stand before a block"
            before = line.strip()
    assert opened is None, f"{path.name}: the block that starts before line {opened and opened[1]} has no end"
    assert before != MARK, f"{path.name}: {MARK} must stand before a block"
    return blocks


def runnable(path: Path) -> list[Block]:
    """The blocks to run; a mark that has no effect is an error."""
    chosen = []
    for block in read_blocks(path):
        if block.language == "python" and (block.marked or path.name == "README.md"):
            chosen.append(block)
        elif block.marked:
            known = block.language == "console" and block.commands()
            assert known, f"{block.place}: a marked block must be Python, or a console block with '$ daes …' lines"
            chosen.append(block)
    return chosen


def run_document(path: Path, folder: Path) -> int:
    """Run the file's blocks in the given folder, which is the current one; how many there were."""
    namespace = {"__name__": "__main__"}
    blocks = runnable(path)
    for block in blocks:
        if block.language == "python":
            # So many empty lines before it, and a traceback shows the line of the document.
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), namespace)
        else:
            for command in block.commands():
                run_command(command, folder, block.place)
    return len(blocks)


def run_command(command: str, folder: Path, place: str) -> None:
    """Run a line as a shell would, with `daes` being the program of this interpreter."""
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    program = programs / "daes"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m daes "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{place}: `{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_documents_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = set(METHODS)
    run_document(path, tmp_path)
    for name in set(METHODS) - known:  # of a page that registers one, which other tests must not find
        del METHODS[name]


class TestMachinery:
    """A block that fails must fail the test."""

    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        def run(text, name="README.md"):
            (tmp_path / name).write_text(text, encoding="utf-8")
            return run_document(tmp_path / name, tmp_path)

        return run

    def test_blocks_share_a_namespace_and_a_folder_in_order(self, run, tmp_path):
        text = "# Title\n\n```python\nx = 2\n```\n\ntext\n\n```python\nopen('made', 'w').write(str(x + 1))\n```\n"
        assert run(text) == 2
        assert (tmp_path / "made").read_text() == "3"

    def test_a_failing_block_fails_at_its_line(self, run, tmp_path):
        with pytest.raises(ZeroDivisionError) as caught:
            run("one\n\n```python\nx = 1\n1 / 0\n```\n")
        last = caught.traceback[-1]
        assert (str(last.path), last.lineno + 1) == (str(tmp_path / "README.md"), 5)
        with pytest.raises(SyntaxError):
            run("```python\nx =\n```\n")

    def test_elsewhere_only_marked_blocks_run(self, run):
        text = "```python\n1 / 0\n```\n\n<!-- run -->\n```python\nx = 1\n```\n\n```console\n$ daes nosuch\n```\n"
        assert run(text, "guide.md") == 1
        with pytest.raises(ZeroDivisionError):
            run("<!-- run -->\n\n```python\n1 / 0\n```\n", "guide.md")

    def test_a_mark_is_for_one_block(self, run):
        assert run("<!-- run -->\n```python\n```\n```python\n1 / 0\n```\n", "guide.md") == 1

    def test_other_languages_are_left_alone(self, run):
        assert run("```\n1 / 0\n```\n```json\n{}\n```\n~~~text\n```python\n1 / 0\n```\n~~~\n") == 0

    def test_a_fence_ends_at_one_as_long(self, run):
        assert run('````python\nx = """\n```\n"""\n````\n') == 1

    def test_an_indented_block_is_read_from_its_indent(self, run):
        assert run("- item\n\n   ```python\n   x = 1\n   if x:\n       y = 2\n   ```\n") == 1

    def test_commands_run_as_in_a_shell(self, run, tmp_path):
        lines = ["$ daes --version > out", "daes 0", "$ cd nosuch", "$ daes \\", "    --version >> out"]
        assert run("\n".join(["<!-- run -->", "```console", *lines, "```"])) == 1
        first, second = (tmp_path / "out").read_text().splitlines()
        assert first == second
        assert first.startswith("daes ")

    def test_a_failing_command_fails_and_says_why(self, run):
        with pytest.raises(AssertionError, match=r"README.md:3: `daes nosuch` ended with 2:\n.*nosuch"):
            run("<!-- run -->\n```console\n$ daes nosuch\n```\n")

    def test_a_hanging_command_is_ended(self, run, monkeypatch):
        monkeypatch.setattr(sys.modules[run_command.__module__], "SECONDS", 0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            run("<!-- run -->\n```console\n$ daes --version\n```\n")

    @pytest.mark.parametrize(
        "text",
        [
            "<!-- run -->\n```console\n$ ls\n```\n",
            "<!-- run -->\n```json\n{}\n```\n",
            "<!-- run -->\ntext\n```python\n```\n",
            "text\n<!-- run -->\n",
            "```python\nx = 1\n",
        ],
    )
    def test_a_mark_without_effect_or_a_block_without_end_is_an_error(self, run, text):
        with pytest.raises(AssertionError, match=r"README.md"):
            run(text)

    def test_the_readme_is_among_the_documents(self):
        assert DOCUMENTS[0].is_file()
