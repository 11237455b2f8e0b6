"""pyarrow and its parts, loaded when something of them is first used: `import daes` does without."""

from daes.extras import lazy_module

pa = lazy_module("pyarrow")
pc = lazy_module("pyarrow.compute")
pa_csv = lazy_module("pyarrow.csv")
fs = lazy_module("pyarrow.fs")
pq = lazy_module("pyarrow.parquet")
