"""Running a planned program: kernels, the arena executor, devices."""
