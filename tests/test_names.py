"""One meaning per name: no class of the package is defined twice."""

import ast
from collections import defaultdict
from pathlib import Path

import daes


def test_no_class_is_defined_twice():
    package = Path(daes.__file__).parent
    places = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(package).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
