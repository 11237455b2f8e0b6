"""Kernels compile for a GPU, also where there is none: the interpreter takes more than the compiler does."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from daes.embedding.kernels import combined, gated_tables, gating, interpolation, mixing, observation
from daes.embedding.kernels import recent, rows, sampling

FLOATS = "values lows highs slots minimum maximum knots centre scale table missing linear gradient weights base out"
FLOATS += " sums slopes changes context projection tiles picked numbers labels kept_numbers edges fields plain"
FLOATS += " kept_logits vectors"
WHOLE = "count skipped before positions targets following seen categories kept_categories index order offsets"
TYPES = dict.fromkeys(FLOATS.split(), "*fp32") | dict.fromkeys(WHOLE.split(), "*i64")
TYPES |= {"counts": "*i32", "member": "*i8", "levels": "*fp64", "total": "*fp64", "kept_missing": "*i1"}
TYPES |= {"kept_labels": "*u8", "number_counts": "*fp64", "row_counts": "*fp64", "beta": "fp32", "strength": "fp32"}
TYPES |= {"errors": "*fp64", "clock": "*i64", "logits": "*fp32"}

def compile(kernel, warps, types=None, **constants):
    signature = {name: (TYPES | (types or {})).get(name, "i32") for name in kernel.arg_names}
    signature |= dict.fromkeys(constants, "constexpr")
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ptx"]

sizes = {"K": 100, "M": 10, "STEPS": 7, "HALF": 0.005, "D": 16, "DP": 16}
compile(interpolation._forward, 2, {"total": "i32"}, **sizes, LINEAR=1, CONTEXT=False, PLAIN=2, FIRST=2, SECOND=1,
        THIRD=0, BLOCK=64)
compile(interpolation._backward, 1, **sizes, R=11, RP=16, LINEAR=1, CONTEXT=True, BLOCK=32)
mixed = {"M": 10, "MP": 16, "D": 16, "DP": 16, "SQUASH": True, "BLOCK": 32}
compile(mixing._forward, 1, **mixed, BASE=True)
compile(mixing._backward, 1, **mixed)
gate = sizes | {"K": 10, "R": 10, "RP": 16, "C": 16, "CP": 16, "LINEAR": 0, "BLOCK": 32, "PRECISION": "tf32x3"}
compile(gating._forward, 1, **gate, PLAIN=0, FIRST=0, SECOND=0, THIRD=0)
compile(gating._backward, 1, **gate)
narrow = {"C": 16, "CP": 16, "D": 16, "DP": 16, "BLOCK": 32}
compile(gated_tables._forward, 1, {"out": "*fp32"}, **narrow)
compile(gated_tables._backward, 1, **narrow)
compile(observation._summarise, 4, QP=16, BLOCK=256)
compile(observation._accept, 4, QP=16, BLOCK=256, ROUNDS=4, BLOCK_ROUNDS=2, WIDTH=32, CHUNK=128, ENDS=True)
compile(observation._sort, 1, TILE=1024)
compile(observation._select, 1, TP=128, TILE=1024, RANKS=2)
compile(observation._set_knots, 4, IP=128, LP=256)
compile(sampling._keep, 4, QP=16, PP=32, ROUNDS=4, BLOCK_ROUNDS=2, WIDTH=32, BLOCK=64)
compile(rows._look_up, 2, {"rows": "*i64", "total": "i32"}, D=16, DP=16, BLOCK=64)
compile(rows._evidence, 4, {"rows": "*i64"}, QP=16, PP=32, STEPS=6, BLOCK=32)
compile(rows._count, 4, {"rows": "*i64"}, QP=16, PP=32, STEPS=6, BLOCK=32)
compile(combined._find_values, 4, {"rows": "*i64", "out": "*i32"}, NP=64, STEPS=6, BLOCK=16)
cells = {"CELLS": 8191, "KP": 64, "BLOCK": 16}
told = {"values": "*i32", "fields": "*i64", "count": "i32", "weight": "*fp32", "odds": "*fp32"}
compile(combined._combine, 4, told, FROZEN=False, **cells)
compile(combined._combine, 4, told | {"errors": "*fp32"}, FROZEN=True, **cells)
compile(combined._note, 4, told, **cells)
for kernel in (recent._recall, recent._fade, recent._add):
    compile(kernel, 4, {"rows": "*i64"}, HALF_LIFE=300.0, NP=64, STEPS=6, BLOCK=16)
"""


@pytest.mark.slow
def test_kernels_compile(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = tmp_path / "compile_kernels.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-3000:]
