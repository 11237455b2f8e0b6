"""Speed against peers and against ourselves; `python -m benchmarks cpu` fills one table for a machine."""
