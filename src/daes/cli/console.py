"""Where the command line writes: results to `out`, everything else (progress, notes, errors) to `err`."""

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
