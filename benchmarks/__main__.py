"""`python -m benchmarks NAME [options]` runs benchmarks/NAME.py; without a name it lists them."""

import ast
import sys
from importlib import import_module
from pathlib import Path

HELPERS = ("table",)


def scripts() -> dict[str, str]:
    """The name of each script, and the first line of its docstring."""
    paths = sorted(Path(__file__).parent.glob("[a-z]*.py"))
    docstrings = {path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}
    return {name: (text or "").partition("\n")[0] for name, text in docstrings.items() if name not in HELPERS}


def main() -> None:
    known = scripts()
    name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name not in known:
        lines = [
            "usage: python -m benchmarks NAME [options]",
            "",
            *(f"  {one:12}{what}" for one, what in known.items()),
        ]
        print("\n".join([*lines, "", "python -m benchmarks NAME --help lists the options."]))
        sys.exit(0 if name in ("--help", "-h") else f"there is no benchmark {name!r}")
    sys.argv[0] = f"python -m benchmarks {name}"
    import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
