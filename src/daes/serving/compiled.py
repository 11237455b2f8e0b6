"""A model's graph as machine code, by torch's AOTInductor and a C++ compiler.

A frozen model has some hundred small operators; for one row, calling them takes most of the time. Compiled, they are a
few loops, and one row is an order of magnitude faster. Compiling takes a minute, but only once: models with the same
configuration, such as the checkpoints of a run, differ only in their tensors and share the code.

    python -m daes.serving.compiled RUN FILE     compile the newest model of RUN
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Self

import torch
from torch import Tensor, nn

from daes.model import CTRModel
from daes.model.export import quiet_export, scores_program

_OPTIONS = {
    # The tensors are not part of the code: neither packaged with it nor, if they are small, as literals in it.
    "aot_inductor.package_constants_in_so": False,
    "always_keep_tensor_constants": True,
}
_PREFIX = "model."


class CompiledScores:
    """Compiled code that scores with the tensors of any model of its configuration; thread-safe."""

    def __init__(self, path: str | Path) -> None:
        load: Any = torch._inductor.aoti_load_package
        with quiet_export():
            self._run = load(str(path))
        self._names: list[str] = self._run.get_constant_fqns()
        self._lock = Lock()
        self._bound: Mapping[str, Tensor] | None = None

    @classmethod
    def compile(cls, model: CTRModel, path: str | Path) -> Self:
        """Compile a frozen model in eval mode, on the CPU, into a file that ends in .pt2."""
        if compiler() is None:
            raise RuntimeError("a C++ compiler is needed to compile a model: install g++ or clang++, or set CXX")
        build: Any = torch._inductor.aoti_compile_and_package
        program = scores_program(model, model.schema)
        with quiet_export():
            build(program, package_path=str(path), inductor_configs=_OPTIONS)
        return cls(path)

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """The tensors of a model that the code reads; an error if the model has another configuration."""
        own = {f"{_PREFIX}{name}": tensor for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        if lacking := [name for name in self._names if name not in own]:
            raise ValueError(f"the code was compiled for another model: this one lacks {', '.join(lacking)}")
        return {name: own[name].detach().contiguous() for name in self._names}

    def __call__(self, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> Tensor:
        """Logits (B,) of the model with these tensors; the inputs are in the order of `daes.model.export`."""
        with self._lock:
            if self._bound is not tensors:
                self._run.load_constants(dict(tensors), check_full_update=True, user_managed=True)
                self._bound = tensors  # keeps them alive: the code reads their memory
            # Calling `self._run` would parse the description of its inputs each time, which takes longer than the code.
            logits: Tensor = self._run.loader.boxed_run(list(inputs))[0]
            return logits


def compiler() -> str | None:
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]
    return next((found for found in map(shutil.which, names) if found), None)


def main() -> None:
    from daes.serving.versions import ModelFolder

    folder, out = sys.argv[1:]
    CompiledScores.compile(ModelFolder(folder).load_newest().model.freeze(), out)


if __name__ == "__main__":
    main()
