"""The README shows what the commands print today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_commands_in_the_readme_print_what_it_shows():
    """Else: scripts/examples."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "examples", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
