"""The `daes` command: says which extra is missing instead of a traceback."""

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

    run()


if __name__ == "__main__":
    main()
