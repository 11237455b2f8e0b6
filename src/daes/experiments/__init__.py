"""Grids of trials, their log, comparison and statistical tests: what `daes compare` and `daes.paper` are built on.

- `trial`: one method on one backbone with one seed, trained and judged.
- `compare`: methods × backbones × seeds; `comparison`: what follows from the results.
- `scores`, `significance`: means over seeds, t-tests and ranks.
- `log`, `runner`, `workers`, `fingerprint`: results that are kept, resumed and known by the code that made them.
"""
