"""A folder whose files have the names of modules: each leaves a mark where it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "with open({mark!r}, 'a') as file:\n    file.write({name!r} + '\\n')\n"
START = "import sys\nfrom gradtool.cli import main\nif __name__ == '__main__':\n    main()\n"

# What Python itself imports before any line of a program, where an empty entry of PYTHONPATH or
# `python -m` names the current folder.
PYTHONS_OWN = ("__future__", "encodings", "sitecustomize", "usercustomize")
MODULES = (
    "numpy", "onnx", "onnx_ir", "onnxruntime", "onnx_shape_inference", "ml_dtypes", "google",
    "scipy", "sympy", "click", "rich", "mpi4py", "cupy", "PIL", "pyarrow", "tensorboardX",
    "torch", "pip", "venv", "ensurepip", "json", "subprocess", "multiprocessing", "concurrent",
    "pickle", "socket", "tempfile", "runpy", "pkgutil", "logging", "random", "hashlib", "platform",
    "threading", "signal", "typing", "dataclasses", "tomllib", "importlib_metadata", "gc", "ctypes",
    "sysconfig", "inspect", "traceback", "ast", "zipfile", "difflib", "shutil", "gradtool_plugin",
)  # fmt: skip
# What names a distribution's entry points as pip leaves them.
POINTS = "[gradtool.rules]\nacme = gradtool_plugin\n[gradtool.losses]\nl = gradtool_plugin:f\n"


@dataclass(frozen=True)
class Shadows:
    """A folder of such files, and what was imported of them."""

    folder: Path
    mark: Path

    @classmethod
    def made(cls, folder: Path, mark: Path, without: tuple[str, ...] = ()) -> Shadows:
        """Modules and packages in turn, and a distribution with entry points."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate((*PYTHONS_OWN, *MODULES, "gradtool")):
            if name in without:
                continue
            path = folder / (f"{name}/__init__.py" if number % 2 else f"{name}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(MARK.format(mark=str(mark), name=name))
        about = folder / "acme-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(POINTS)
        return cls(folder, mark)

    @property
    def imported(self) -> list[str]:
        """The names of what was imported."""
        return self.mark.read_text().split() if self.mark.exists() else []

    def gradtool(self, *arguments: object, module: bool = False, **more: str):
        """One command there: as the program that is installed starts, or by `python -m`."""
        program = self.mark.with_name("gradtool-program")
        program.mkdir(exist_ok=True)
        (program / "gradtool").write_text(START)
        start = ["-m", "gradtool"] if module else [str(program / "gradtool")]
        seen = {k: v for k, v in os.environ.items() if k not in ("CI", "PYTHONSAFEPATH")}
        return subprocess.run(
            [sys.executable, *start, *map(str, arguments)],
            cwd=self.folder,
            env={**seen, "PYTHONPATH": str(ROOT), **more},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
