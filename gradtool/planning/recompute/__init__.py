"""Steps that run again by rule: mirroring, segments, and what a policy allows of it."""
