"""Which code produced a result: a hash of the sources, since code changes between versions."""

import ast
import hashlib
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import daes

NO_INFLUENCE = (
    "__main__.py",
    "classifier.py",
    "cli",
    "extras.py",
    "formatting.py",
    "model/export.py",
    "paper",
    "report",
    "serving",
    "table.py",
)
"""The modules and packages of `daes` without influence on the result of a trial."""
_C_COMMENT = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|/\*.*?\*/|//[^\n]*""", re.DOTALL)
"""A comment, or in group 1 a string or a character, which may look like one."""
_WITHOUT_MEANING = {"ctx", "kind", "type_comment", "type_ignores"}


def code_fingerprint(*more: str) -> str:
    """A hash of the code that determines the result of a trial, and of further packages such as `"paper"`.

    It covers the names and syntax trees of all modules of `daes` except `NO_INFLUENCE`, and the C sources without their
    comments. Comments, docstrings, blank lines and indentation do not count. It is computed once per process.

    >>> code_fingerprint() == code_fingerprint(), code_fingerprint() == code_fingerprint("paper")
    (True, False)
    """
    return _fingerprint(Path(daes.__file__).parent, frozenset(NO_INFLUENCE) - {*more})


@cache
def _fingerprint(package: Path, left_out: frozenset[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if left_out.isdisjoint((name.parts[0], name.as_posix())):
            digest.update(f"{name.as_posix()} {structure(path.read_text(encoding='utf-8'))}\n".encode())
    for path in sorted(package.rglob("*.[ch]")):
        code = without_comments(path.read_text(encoding="utf-8"))
        digest.update(f"{path.relative_to(package).as_posix()} {code}\n".encode())
    return digest.hexdigest()[:16]


def structure(source: str) -> str:
    """The syntax tree of a source as text, without positions and without strings that are statements (docstrings).

    Empty and absent fields are left out, so that fields added by later versions of Python change nothing. (Whether
    `ast.dump` prints them depends on the version.)

    >>> structure("x = 1  # one") == structure("x=1"), structure("x = 1") == structure("x = 1.0")
    (True, False)
    """
    return _structure(ast.parse(source))


def without_comments(source: str) -> str:
    r"""A C source without comments, blank lines and indentation.

    >>> without_comments('int f(void) { /* one\n * two */\n\n    return 1; // three\n}')
    'int f(void) {\nreturn 1;\n}'
    """
    code = _C_COMMENT.sub(lambda found: found[1] or " ", source)
    return "\n".join(line for line in map(str.strip, code.splitlines()) if line)


def _structure(node: Any) -> str:
    if isinstance(node, list):
        return f"[{','.join(_structure(one) for one in node if not _is_string_statement(one))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr(values={_structure(_joined(node.values))})"
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _WITHOUT_MEANING)
    shown = (f"{name}={_structure(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({','.join(shown)})"


def _joined(parts: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string with adjacent texts joined: versions of Python differ in where they split them."""
    joined: list[ast.expr] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, ast.Constant)):
        if not is_text:
            joined += group
        elif text := "".join(str(part.value) for part in group if isinstance(part, ast.Constant)):
            joined.append(ast.Constant(text))
    return joined


def _is_string_statement(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
