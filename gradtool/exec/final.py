"""When the gradients of a step are final: nothing but updates and results is made of them then."""

from __future__ import annotations

from collections.abc import Mapping

from gradtool.program import Program


def final_steps(program: Program, gradients: Mapping[str, int]) -> dict[str, int | None]:
    """By name of a gradient, the step after which it may be changed in place.

    None where that would change something else: a value that backward goes on with, another
    result, what the step is given.
    """
    touches: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        for root in dict.fromkeys(program.storage(v) for v in (*step.reads, *step.writes)):
            touches.setdefault(root, []).append(index)
    results: dict[int, set[int]] = {}
    for value in (*program.outputs, *gradients.values()):
        results.setdefault(program.storage(value), set()).add(value)
    return {
        name: _final(program, touches.get(program.storage(value), []), results, value)
        for name, value in gradients.items()
    }


def _final(
    program: Program, touches: list[int], results: Mapping[int, set[int]], value: int
) -> int | None:
    root = program.storage(value)
    made = any(program.storage(v) == root for i in touches for v in program.steps[i].writes)
    if len(results[root]) > 1 or not made:
        return None
    updates = [i for i in touches if program.steps[i].stage == "update"]
    others = [i for i in touches if program.steps[i].stage != "update"]
    if not others or (updates and updates[0] < others[-1]):
        return None
    return others[-1]
