"""Cases of the elementwise family."""

from __future__ import annotations

from cases import case, floats

for name in ("Add", "Sub", "Mul"):
    case(name, (3, 4), (3, 4))
    case(name, (2, 3, 4), (4,))
    case(name, (3, 1), (2, 1, 4))
    case(name, (), (2, 3))
case("Div", (3, 4), floats(3, 4, gap=0.5))
case("Div", (2, 3), floats(gap=0.5))
for name in ("Neg", "Abs", "Exp"):
    case(name, (3, 4))
    case(name, ())
case("Sum", (2, 3), (3,), (1, 3))
case("Identity", (2, 3))
