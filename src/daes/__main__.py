"""The `daes` command; where the extra for it is missing, it says so."""

import atexit
import os
import sys


def main() -> None:
    """Run the command line."""
    # What torch's C++ code warns of is said by the errors that follow, without stacks.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from daes.extras import MissingExtraError, require

    try:
        require("typer")
        require("rich")
    except MissingExtraError as error:
        sys.exit(f"daes: {error}")
    try:
        from daes.cli.app import build_app

        app = build_app()
    except KeyboardInterrupt:
        print("daes: interrupted", file=sys.stderr)
        sys.exit(130)
    try:
        app(prog_name="daes")
    except SystemExit as ended:
        # Threads of torch.distributed and of TorchRec sometimes abort a process at its regular end, when all is done.
        distributed = "torchrec" in sys.modules or os.environ.get("WORLD_SIZE", "1") != "1"
        if distributed and isinstance(ended.code, int | None):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code or 0)
        raise


if __name__ == "__main__":
    main()
