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
    finally:
        if "torchrec" in sys.modules:
            _end_at_once(sys.exc_info()[1])


def _end_at_once(ended: BaseException | None) -> None:
    """End the process without C++'s part of it: threads of TorchRec's libraries at times abort what ends as usual."""
    if isinstance(ended, SystemExit) and isinstance(ended.code, int | None):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)


if __name__ == "__main__":
    main()
