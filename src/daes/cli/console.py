"""Where the command line writes: results to `out`, progress and notes to `err`, errors to `errors`.

With `--quiet` nothing is written to `err`.
"""

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
errors = Console(stderr=True, highlight=False)
