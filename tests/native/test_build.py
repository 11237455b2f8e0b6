"""The library of compiled loops."""

import os
import subprocess
import sys

import pytest

from daes import native
from daes.native.build import build, library

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")


def test_the_environment_turns_them_off():
    code = "from daes import native; print(native._library)"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "DAES_NATIVE": "0"}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"


def test_what_is_built_is_not_built_again():
    before = library().stat().st_mtime_ns
    assert build() == library()
    assert library().stat().st_mtime_ns == before
