"""The story of docs/ci.md, replayed: each `$ command` in a repository, with what it prints.

python tests/story.py        # writes what the commands print now into docs/ci.md
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from repository import Repository, environment

PAGE = Path(__file__).parents[1] / "docs" / "ci.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_GRADTOOL = '#!/bin/sh\nexec "{python}" -m gradtool "$@"\n'
_WRITE_MODEL = """#!/bin/sh
PYTHONPATH="{tests}" exec "{python}" "{tests}/story_models.py" "$@"
"""


class Story:
    """A repository in which the commands of a page run one after the other, in one shell's place.

    `write-model` is what writes models there, as a training project has one.
    """

    def __init__(self, folder: Path) -> None:
        self.repository = Repository.made(folder / "repository")
        self.programs = folder / "programs"
        self.programs.mkdir()
        tests = Path(__file__).parent
        for name, text in (("gradtool", _GRADTOOL), ("write-model", _WRITE_MODEL)):
            program = self.programs / name
            program.write_text(text.format(python=sys.executable, tests=tests), encoding="utf-8")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def run(self, command: str) -> str:
        """What a command prints, errors among it, and its exit code where that is not 0."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.repository.path,
            env=environment(PATH=path, PYTHONUNBUFFERED="1", PYTHONUTF8="1", LC_ALL="C.UTF-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        lines = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
        return lines + (f"[exit {done.returncode}]\n" if done.returncode else "")

    def block(self, text: str) -> str:
        """The commands of a block, each with what it prints now."""
        commands = [line for line in text.splitlines() if line.startswith("$ ")]
        return "".join(f"{command}\n{self.run(command[2:])}" for command in commands)


def replayed(page: str, folder: Path) -> str:
    """The page with what its commands print now."""
    story = Story(folder)
    return _BLOCK.sub(lambda found: f"```console\n{story.block(found[1])}```", page)


def main() -> None:
    """Write what the commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        text = replayed(PAGE.read_text(encoding="utf-8"), Path(folder))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
