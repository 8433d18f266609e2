"""Data-parallel and pipelined training on several processes: communication and launch."""
