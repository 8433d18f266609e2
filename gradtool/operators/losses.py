"""Numbers by which losses stay finite, as PyTorch has them."""

from __future__ import annotations

# The least value of each logarithm of a binary cross-entropy.
LOWEST_LOG = -100.0
# The least divisor `p (1 - p)` of its gradient.
LEAST_VARIANCE = 1e-12
