"""The build hook: compiles native/ into the wheel, or into the tree for an editable install.

Environment: `GRADTOOL_PURE=1` builds a wheel without native kernels and asks for no compiler;
`GRADTOOL_PLATFORM` names another platform of native/build.py than that of this Python.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILER = "ziglang>=0.15,<0.18"


class NativeHook(BuildHookInterface):
    """Adds the library and the platform's tag to a wheel."""

    PLUGIN_NAME = "custom"

    def _platform(self) -> str | None:
        if self.target_name != "wheel" or os.environ.get("GRADTOOL_PURE") == "1":
            return None
        return os.environ.get("GRADTOOL_PLATFORM") or _builder(self.root).here()

    def _folder(self, name: str) -> Path:
        """Beside the tree, whose own library is that of an editable install."""
        return Path(self.root) / "build" / "native" / name

    def dependencies(self) -> list[str]:
        return [COMPILER] if self._platform() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library of the platform, and name the wheel after it."""
        name = self._platform()
        if name is None:
            return
        builder = _builder(self.root)
        if name not in builder.PLATFORMS:
            raise SystemExit(f"GRADTOOL_PLATFORM={name}: not one of {', '.join(builder.PLATFORMS)}")
        try:
            library = builder.build(name, None if version == "editable" else self._folder(name))
        except builder.BuildError as error:
            raise SystemExit(f"gradtool: {error}") from None
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{builder.PLATFORMS[name].tag}"
        if version != "editable":
            for path in sorted(library.parent.iterdir()):
                build_data["force_include"][str(path)] = f"gradtool/native/lib/{path.name}"


def _builder(root: str) -> Any:
    path = Path(root) / "native" / "build.py"
    spec = importlib.util.spec_from_file_location("gradtool_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
