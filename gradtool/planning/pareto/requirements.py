"""Requirements of a search for plans: the native library, which makes all changes of a schedule."""

from __future__ import annotations

from gradtool.errors import DeviceError
from gradtool.native import library


def lacking() -> str:
    """Why no plan can be searched for here, in one line; nothing where one can."""
    found, remark = library.status()
    return "" if found else f"a search for a plan needs the native library: {remark}"


def require() -> None:
    """Require the means of a search for plans.

    Raises:
        DeviceError: the library cannot be called here.
    """
    if said := lacking():
        raise DeviceError(f"{said}; reorder, mirror, sqrt and segments do without")
