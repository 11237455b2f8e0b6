"""The command line: one thin module a verb."""


def run() -> None:
    """Run the `daes` program on the arguments of this process; does not return."""
    from daes.cli.app import build_app

    build_app()(prog_name="daes")
