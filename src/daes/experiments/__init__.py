"""Grids of trials, their log, comparison and statistical tests: what `daes compare` and `daes.paper` are built on.

- `trial`: one method on one backbone with one seed, trained and evaluated.
- `compare`: methods × backbones × seeds; `comparison`: their results.
- `scores`, `significance`, `row_tests`, `method_tests`: means over seeds, ranks and tests.
- `log`, `workers`, `fingerprint`: results that are kept, resumed and identified by the code that made them.
"""
