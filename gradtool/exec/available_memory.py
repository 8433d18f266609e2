"""The memory of this machine: how much there is, and whether it suffices for a run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gradtool.errors import NoRoom

GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
GROUP_USES = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
CHECKED = 2**28  # what is smaller is taken without asking


def require(size: int, what: str) -> None:
    """Raise NoRoom where memory has no room for so many bytes.

    A system gives out more than it has, and ends the process that writes to it.
    """
    if size < CHECKED:
        return
    found = free()
    if found is not None and size > found:
        raise NoRoom(f"cpu: no room for {what} of {size} bytes; {found} are free")


def free() -> int | None:
    """The bytes that this process may still take; None where nobody tells."""
    found = [each for each in (memory()[0], _addresses()) if each is not None]
    return min(found, default=None)


def memory() -> tuple[int | None, int | None]:
    """Free and total bytes, within the limit of the control group if there is one."""
    free = total = None
    with suppress(OSError, ValueError, KeyError):
        sizes = _meminfo()
        free, total = sizes["MemAvailable"], sizes["MemTotal"]
    if total is None:
        with suppress(OSError, ValueError, AttributeError):
            page = os.sysconf("SC_PAGE_SIZE")
            total = page * os.sysconf("SC_PHYS_PAGES")
            free = page * os.sysconf("SC_AVPHYS_PAGES")
    limit, used = _first_number(GROUP_LIMITS), _first_number(GROUP_USES)
    if limit is not None and total is not None and limit < total:
        total = limit
        free = min(free or limit, max(limit - (used or 0), 0))
    return free, total


def _addresses() -> int | None:
    """Bytes of addresses left to this process, if its system sets a limit."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            return max(limit - pages * resource.getpagesize(), 0)
    return None


def _meminfo() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}


def _first_number(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        with suppress(OSError, ValueError):
            return int(Path(path).read_text(encoding="ascii"))
    return None
