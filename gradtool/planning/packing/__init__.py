"""Addresses for buffers of known size and lifetime, without overlap of live ones.

The largest load is the least that an arena can take, and real training graphs reach it. Packing
stops on counted work, so a plan does not depend on the machine or on installed packages.
"""

from gradtool.planning.packing.pack import PLAN, Effort, Packing, pack, place
from gradtool.planning.packing.problem import load_profile, overlap

__all__ = ["PLAN", "Effort", "Packing", "load_profile", "overlap", "pack", "place"]
