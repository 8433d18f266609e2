"""What a plan holds, in parts."""

import dataclasses

from training_programs import chain

from gradtool.planning import breakdown

PROGRAM = chain(4)


def test_results_of_unknown_size_are_counted_by_operator():
    values = list(PROGRAM.values)
    for step in PROGRAM.steps[:3]:
        for value in step.writes:
            values[value] = dataclasses.replace(values[value], spec=None)
    made = dataclasses.replace(PROGRAM, values=tuple(values))

    assert breakdown.unsized(made) == {"MatMul": 2, "Sin": 1}
    assert breakdown.unsized(PROGRAM) == {}
