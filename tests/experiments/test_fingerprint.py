import ast
import shutil
from pathlib import Path

import pytest

import daes
from daes.experiments import fingerprint, trial
from daes.experiments.fingerprint import NO_INFLUENCE, code_fingerprint, structure, without_comments


@pytest.fixture
def package(tmp_path):
    """A copy of the sources, to change."""
    copy = tmp_path / "daes"
    shutil.copytree(Path(daes.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    yield copy
    fingerprint._fingerprint.cache_clear()


def of(package, *more):
    fingerprint._fingerprint.cache_clear()
    return fingerprint._fingerprint(package, frozenset(NO_INFLUENCE) - {*more})


def change(package, name, before, after):
    path = package / name
    source = path.read_text()
    assert before in source
    path.write_text(source.replace(before, after, 1))


def test_a_copy_is_the_same_code_wherever_it_lies(package):
    assert of(package) == code_fingerprint()
    assert of(package, "paper") == code_fingerprint("paper")


def test_comments_docstrings_blank_lines_and_line_ends_do_not_count(package):
    before = of(package)
    path = package / "training/config.py"
    source = path.read_text()
    assert source.startswith('"""')
    path.write_text('"""Another docstring."""\n\n\n# A comment.\n' + source[source.index('"""', 3) + 3 :])
    for other in (package / "embedding").glob("*.py"):
        other.write_bytes(other.read_bytes().replace(b"\n", b"\r\n"))
    path = package / "native/kernels/blend.h"
    path.write_text("/* A comment. */\n" + path.read_text().replace("\n    ", "\n\n      "))
    assert of(package) == before


def test_a_constant_counts(package):
    before = of(package)
    change(package, "training/config.py", "1e-3", "2e-3")
    assert of(package) != before


@pytest.mark.parametrize(
    "name",
    [
        "training/trainer.py",
        "embedding/daes.py",
        "stream/hashing.py",
        "model/ctr_model.py",
        "native/kernels.c",
        "native/kernels/blend.h",
    ],
)
def test_code_that_decides_on_numbers_counts(package, name):
    before = of(package)
    (package / name).write_bytes((package / name).read_bytes() + b"x = 1\n")
    assert of(package) != before


def test_a_new_module_counts_and_so_does_its_name(package):
    before = of(package)
    (package / "new.py").write_text("x = 1\n")
    added = of(package)
    (package / "new.py").rename(package / "other.py")
    assert len({before, added, of(package)}) == 3


def test_what_does_not_decide_on_numbers_does_not_count(package):
    before = of(package), of(package, "paper")
    for name in ("paper/overall.py", "report/page.py", "cli/app.py", "classifier.py"):
        (package / name).write_text("x = 1\n")
    (package / "training/__pycache__").mkdir()
    (package / "training/__pycache__/auc.cpython-311.pyc").write_bytes(b"x")
    assert of(package) == before[0]
    assert of(package, "paper") != before[1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("def f():\n    '''One.'''\n    return 1", "def f():\n    # One.\n\n    return 1", True),
        ("X = 1\n'''What X is.'''", "X = 1", True),
        ("f(a, b=(1, 2))", "f(\n    a,\n    b=(1, 2),\n)", True),
        ("x = 'a'", 'x = "a"', True),
        ("x = 'a'", "x = 'b'", False),
        ("x = 1", "x = True", False),
        ("x = 0", "x = None", False),
        ("x = a < b", "x = a <= b", False),
        ("x: int = 1", "x = 1", False),
        ("if a:\n    b()\nc()", "if a:\n    b()\n    c()", False),
    ],
)
def test_structure(one, other, same):
    assert (structure(one) == structure(other)) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int x; /* one */", "int x; // two\n", True),
        ("int x;\n/* one\n\n two */\nint y;", "int x;\nint y;", True),
        ("int x = 1;", "int x = 2; /* int x = 1; */", False),
        ('char *x = "/* a */";', 'char *x = "/* b */";', False),
        ('char x = \'"\'; /* \' */ f("a\\"//");', 'char x = \'"\'; /* " */ f("a\\"//");', True),
        ("char x = '\"'; /* ' */ f(\"//a\");", "char x = '\"'; /* ' */ f(\"//b\");", False),
        ("a/**/b", "ab", False),
        ("#define A 1\nint x;", "#define A 1 int x;", False),
    ],
)
def test_c_without_comments(one, other, same):
    assert (without_comments(one) == without_comments(other)) is same


def test_structure_is_the_same_under_every_python():
    assert structure("def f(a, *, b=1):\n    return a + b") == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='a')],kwonlyargs=[arg(arg='b')],"
        "kw_defaults=[Constant(value=1)]),body=[Return(value=BinOp(left=Name(id='a'),op=Add(),right=Name(id='b')))])])"
    )


def test_trials_of_other_code_are_other_trials(monkeypatch):
    one = trial.Trial("ple", "ple", "fnn", seed=0)
    before = one.key("data")
    assert one.key("data") == before
    monkeypatch.setattr(trial, "code_fingerprint", lambda: "other")
    assert one.key("data") != before


def test_where_a_python_cuts_the_texts_of_an_f_string_does_not_count():
    whole = ast.JoinedStr([ast.Constant("ab"), ast.FormattedValue(ast.Name("x"), -1)])
    cut = ast.JoinedStr([ast.Constant("a"), ast.Constant("b"), ast.FormattedValue(ast.Name("x"), -1), ast.Constant("")])
    other = ast.JoinedStr([ast.Constant("ac"), ast.FormattedValue(ast.Name("x"), -1)])
    assert fingerprint._structure(whole) == fingerprint._structure(cut) != fingerprint._structure(other)
