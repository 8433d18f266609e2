"""Learning rates: those of torch.optim.lr_scheduler, step by step."""

import itertools
import math

import pytest

from gradtool.errors import UsageError
from gradtool.training.schedules import SHAPES, schedule

STEPS = 37
TEXTS = [
    "constant", "linear", "linear@end=0.01", "cosine", "cosine@end=0.02", "polynomial@power=2",
    "polynomial@power=0.5,end=0.01", "step@every=7,gamma=0.5", "one-cycle",
    "one-cycle@rise=0.4,div=10,final-div=100", "one-cycle@rise=1", "one-cycle@rise=0",
    "inverse-sqrt", "inverse-sqrt@scale=5", "reduce-on-plateau", "reduce-on-plateau@factor=0.5",
]  # fmt: skip


@pytest.mark.parametrize(("text", "warmup"), [*itertools.product(TEXTS, [0, 1, 5, 36, 50])])
def test_a_rate_is_never_negative_and_at_most_the_peak(text, warmup):
    made = schedule(text, 0.3, warmup=warmup, steps=STEPS)

    rates = [made(step) for step in range(60)]

    assert all(0 <= rate <= 0.3 * (1 + 1e-12) and math.isfinite(rate) for rate in rates)


@pytest.mark.parametrize("text", TEXTS)
def test_warming_up_rises_on_a_line_to_where_the_shape_begins(text):
    plain, warmed = (schedule(text, 0.3, warmup=w, steps=STEPS - 10 + w) for w in (0, 10))

    assert [warmed(step) for step in range(10)] == [0.3 * (step + 1) / 10 for step in range(10)]
    assert [warmed(step + 10) for step in range(27)] == [plain(step) for step in range(27)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cosin", "did you mean 'cosine'"),
        ("cosine@gamma=2", "the schedule cosine has no 'gamma'; it takes end=0"),
        ("constant@a=1", "it takes nothing"),
        ("step@every=0", "every='0' is no number that it can take"),
        ("step@gamma=x", "gamma='x' is no number"),
        ("one-cycle@rise=1.5", "rise='1.5'"),
        ("linear@end=nan", "end='nan'"),
        ("reduce-on-plateau@factor=1", "factor='1' is no number that it can take"),
        ("reduce-on-plateau@patience=1.5", "patience='1.5'"),
        ("reduce-on-plateau@gamma=1", "it takes factor=0.1, patience=10"),
    ],
)
def test_what_is_no_schedule_is_one_line(text, said):
    with pytest.raises(UsageError) as error:
        schedule(text, 0.1, steps=5)

    assert said in str(error.value)


@pytest.mark.parametrize("peak", [-1.0, math.nan, math.inf])
def test_a_rate_is_a_number(peak):
    with pytest.raises(UsageError, match="a learning rate is a number"):
        schedule("constant", peak)


def of_torch(text, rate, warmup, steps):
    """The rates of PyTorch's scheduler."""
    import torch

    lr = torch.optim.lr_scheduler
    made = schedule(text, rate, warmup=warmup, steps=steps)
    given, left = made.given, max(steps - warmup, 1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    shapes = {
        "constant": lambda: lr.ConstantLR(optimizer, 1.0, 1),
        "linear": lambda: lr.LinearLR(optimizer, 1.0, given["end"] / rate, left),
        "cosine": lambda: lr.CosineAnnealingLR(optimizer, left, given["end"]),
        "polynomial": lambda: lr.PolynomialLR(optimizer, left, given["power"]),
        "step": lambda: lr.StepLR(optimizer, int(given["every"]), given["gamma"]),
        "one-cycle": lambda: lr.OneCycleLR(
            optimizer, rate, total_steps=left, pct_start=given["rise"], div_factor=given["div"],
            final_div_factor=given["final-div"], cycle_momentum=False,
        ),
        "reduce-on-plateau": lambda: lr.ConstantLR(optimizer, 1.0, 1),
        "inverse-sqrt": lambda: lr.LambdaLR(
            optimizer, lambda t: (given["scale"] / (t + given["scale"])) ** 0.5
        ),
    }  # fmt: skip
    if warmup > 1:
        first = lr.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
        chain = lr.SequentialLR(optimizer, [first, shapes[made.shape]()], milestones=[warmup])
    else:
        chain = shapes[made.shape]()
    rates = []
    for _ in range(steps - 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        chain.step()
    return [*rates, optimizer.param_groups[0]["lr"]]


# PolynomialLR ends at 0, and SequentialLR forgets the first rate of OneCycleLR.
COMPARED = [
    (text, warmup)
    for text, warmup in itertools.product(TEXTS, [0, 6])
    if "power=0.5" not in text and not (warmup and text.startswith("one-cycle"))
]


@pytest.mark.extra
@pytest.mark.parametrize(("text", "warmup"), COMPARED)
@pytest.mark.filterwarnings("ignore:.*epoch parameter.*:UserWarning")
def test_rates_are_those_of_torch(text, warmup):
    pytest.importorskip("torch")
    expected = of_torch(text, 0.3, warmup, STEPS)
    made = schedule(text, 0.3, warmup=warmup, steps=STEPS)

    assert [made(step) for step in range(STEPS)] == pytest.approx(expected, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("text", TEXTS)
def test_a_shape_is_read_from_its_own_text(text):
    made = schedule(text, 0.3, steps=STEPS)

    assert schedule(made.text, 0.3, steps=STEPS) == made


def test_every_shape_is_tried():
    assert {text.partition("@")[0] for text in TEXTS} == set(SHAPES)
