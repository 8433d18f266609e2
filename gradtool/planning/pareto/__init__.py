"""The Pareto frontier of memory and work: the schedules of a program for any of either."""
