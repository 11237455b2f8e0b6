"""`python -m benchmarks NAME [options]`: runs benchmarks/NAME.py; `python -m benchmarks cpu --help` lists options."""

import sys
from importlib import import_module
from pathlib import Path

names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
if len(sys.argv) < 2 or sys.argv[1] not in names:
    sys.exit(f"usage: python -m benchmarks {'|'.join(names)} [options]")
name = sys.argv.pop(1)
sys.argv[0] = f"python -m benchmarks {name}"
import_module(f"benchmarks.{name}").main()
