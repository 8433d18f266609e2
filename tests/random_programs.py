"""Random programs and random schedules of them, for properties of planning."""

from __future__ import annotations

from hypothesis import strategies as st
from programs import program

ONE, TWO = ("Tanh", "Exp", "Neg"), ("Add", "Mul")


@st.composite
def programs(draw, most=9):
    """A program with views, workspaces, in-place steps and one to three outputs."""
    count = draw(st.integers(2, most))
    names, steps, sizes, views, work = ["x"], [], {"x": 16, "w": 16}, {}, {}
    for index in range(count):
        name = f"v{index}"
        size = draw(st.sampled_from([16, 32, 48]))
        same = [n for n in [*names, "w"] if sizes[n] == size]
        sources = same if same and draw(st.booleans()) else [*names, "w"]
        op = draw(st.sampled_from(ONE + TWO))
        reads = [draw(st.sampled_from(sources)) for _ in range(1 if op in ONE else 2)]
        steps.append(f"{name} = {op} {' '.join(reads)}")
        sizes[name] = size
        names.append(name)
        if draw(st.integers(0, 3)) == 0:
            work[name] = draw(st.sampled_from([64, 256]))
        if draw(st.integers(0, 3)) == 0:
            views[f"{name}r"], sizes[f"{name}r"] = name, size
            names.append(f"{name}r")
    ends = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=3, unique=True))
    read = {n for s in steps for n in s.split()[3:]}
    read |= {views[n] for n in [*read, *ends] if n in views}
    ends += [s.split()[0] for s in steps if s.split()[0] not in {*read, *ends}]
    views = {n: v for n, v in views.items() if n in read or n in ends}
    return program(
        *steps,
        outputs=" ".join(ends),
        parameters="w",
        sizes=sizes,
        views=views,
        work=work,
        in_place=draw(st.booleans()),
    )


@st.composite
def orders(draw, steps):
    """The steps of a program in their order, with repeats put in between."""
    order = list(range(len(steps)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(1, len(order)))
        known = sorted({s for s in order[:place] if steps[s].recomputable})
        if known:
            order.insert(place, draw(st.sampled_from(known)))
    return tuple(order)
