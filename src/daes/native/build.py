"""Compiles `kernels.c`, which consists of the headers in `kernels`: `python -m daes.native`.

Needs a C compiler and nothing else, not even this package.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.c")
HEADERS = sorted(Path(__file__).with_name("kernels").glob("*.h"))

# No contraction into fused multiply-adds: results must not depend on the processor.
_OPTIONS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")


def library() -> Path:
    """The path of the library compiled from the current sources, whether or not it exists."""
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (SOURCE, *HEADERS))).hexdigest()
    return SOURCE.with_name(f"_kernels-{digest[:12]}{suffix}")


def build() -> Path | None:
    """Compile beside the source, unless that was done before; None where there is no compiler, or it fails."""
    path = library()
    if path.exists():
        return path
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None or sys.platform == "win32":
        return None
    for old in SOURCE.parent.glob("_kernels-*"):
        old.unlink(missing_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    result = subprocess.run([compiler, *_OPTIONS, str(SOURCE), "-o", str(partial), "-lm"], check=False)
    if result.returncode:
        partial.unlink(missing_ok=True)
        return None
    partial.replace(path)
    return path
