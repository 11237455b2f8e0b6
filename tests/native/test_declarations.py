"""What Python says of compiled loops is what their sources say: otherwise memory would be read as something else."""

import ctypes
import re
from importlib import import_module
from pkgutil import iter_modules

import pytest

from daes import native
from daes.experiments.fingerprint import without_comments
from daes.native import SIGNATURES, evidence, tensors
from daes.native.build import HEADERS

CODE = without_comments("\n".join(path.read_text(encoding="utf-8") for path in HEADERS))
KINDS = {"int64_t": "n", "uint64_t": "n", "float": "f", "double": "d", "void": ""}
TYPES = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "float": ctypes.c_float, "double": ctypes.c_double}


def structures():
    """All structures of `daes.native`, each with the name in C that its docstring begins with."""
    for module in iter_modules(native.__path__, "daes.native."):
        if module.name.startswith("daes.native._"):  # the program, and what was compiled
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, ctypes.Structure) and value.__module__ == module.name:
                yield pytest.param(value, re.match(r"`(\w+)` of", value.__doc__)[1], id=value.__name__)


def kind(declared):
    return "p" if "*" in declared else KINDS[declared.replace("const ", "").split()[0]]


def fields_of(name):
    """The names and types of the fields of a structure in C."""
    (body,) = re.findall(rf"typedef struct \{{([^}}]*)\}} {name};", CODE)
    for line in body.split(";")[:-1]:
        declared, *others = line.replace("const ", "").split(",")
        kind, first = re.fullmatch(r"(\w+)\b(.*)", declared.strip(), re.DOTALL).groups()
        for field in (first, *others):
            own, size = re.fullmatch(r"[\s*]*(\w+)(?:\[(\d+)\])?", field).groups()
            if "*" in field:
                yield own, ctypes.c_void_p
            else:
                yield own, TYPES[kind] if size is None else TYPES[kind] * int(size)


def test_signatures():
    declared = re.findall(r"^(?:FAST )?(\w+) daes_(\w+)\(([^)]*)\) \{", CODE, re.MULTILINE)
    found = {name: f"{kind(result)}({''.join(map(kind, given.split(',')))})" for result, name, given in declared}
    assert found == {name: signature.replace("t", "p") for name, signature in SIGNATURES.items()}


@pytest.mark.parametrize(("structure", "name"), [*structures()])
def test_structures(structure, name):
    assert list(structure._fields_) == list(fields_of(name))


def test_sizes_that_both_know():
    constants = dict(re.findall(r"\b([A-Z]+) = (\d+)\b", CODE))
    assert int(constants["APART"]) == evidence._APART
    assert int(constants["SIDE"]) == tensors.SIDE
    assert evidence._ERRORS == 2 * 6  # `row_errors`: a vector of four floats of 64 bits, and two more
