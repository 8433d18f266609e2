"""One ladder of budgets: the schedules of a program for any memory and any work."""
