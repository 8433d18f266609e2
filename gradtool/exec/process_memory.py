"""The memory of this process as Linux counts it: anonymous, and pages of mapped files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Resident:
    """Resident bytes: `anonymous` ones, and the ones `of_files`, which the system may take back.

    Files in memory (`tmpfs`) count to files.  Source: proc(5), RssAnon, RssFile, RssShmem.
    """

    anonymous: int
    of_files: int


def resident() -> Resident | None:
    """What is resident now; None where the system does not tell."""
    try:
        now = status()
    except OSError:
        return None
    return Resident(now["RssAnon"], of_files(now)) if "RssAnon" in now else None


def of_files(now: dict[str, int]) -> int:
    """Bytes of mapped files in a status, of file systems in memory too."""
    return now.get("RssFile", 0) + now.get("RssShmem", 0)


def status() -> dict[str, int]:
    """The sizes in the status of this process, in bytes.

    Raises:
        OSError: this system has no such file.
    """
    lines = (line.split() for line in STATUS.read_text(encoding="ascii").splitlines())
    return {w[0].rstrip(":"): int(w[1]) * 1024 for w in lines if w[-1:] == ["kB"]}
