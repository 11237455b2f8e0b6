"""Frozen models: exported to a file, scoring in this process, or served over HTTP."""
