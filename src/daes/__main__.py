"""The `daes` command: says which extra is missing instead of a traceback."""

import atexit
import os
import sys


def main() -> None:
    """Run the command line."""
    from daes.extras import MissingExtraError, require

    try:
        require("typer")
        require("rich")
    except MissingExtraError as error:
        sys.exit(f"daes: {error}")
    from daes.cli import run

    try:
        run()
    except SystemExit as ended:
        # Threads of TorchRec's libraries at times abort a process that ends as usual, with all done.
        if "torchrec" in sys.modules and isinstance(ended.code, int | None):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code or 0)
        raise


if __name__ == "__main__":
    main()
