"""Training: data, schedules, the loop, its records, and what comes out."""
