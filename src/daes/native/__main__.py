"""`python -m daes.native` compiles the loops."""

from daes.native.build import build

print(build() or "no C compiler was found, or it failed: training on the CPU goes on without compiled loops")
