"""Compiles the loops of `daes.native` into the wheel, where there is a C compiler; without one the wheel is plain."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLoops(BuildHookInterface):
    """A build hook of hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile beside the source, and mark the wheel as one for this platform."""
        if self.target_name != "wheel":
            return
        built = runpy.run_path(str(Path(self.root, "src/daes/native/build.py")))["build"]()
        if built is not None:
            build_data["artifacts"].append(str(built.relative_to(self.root)))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
