"""What stages take on paper is what they take."""

import json
from functools import partial
from itertools import pairwise

import jsonschema
import pytest
import stage_cases
from conftest import sampled, swept
from forked_ranks import on_ranks, supported
from rank_cases import DATA

import gradtool as gt
from gradtool.commands.schema import schema_named
from gradtool.passes.synchronized import synchronized
from gradtool.training.graphs import Recipe, graphs_of
from gradtool.training.layouts import PaperTraining
from gradtool.training.links import Link, step_seconds
from gradtool.training.options import TrainOptions
from gradtool.training.stage_layouts import pipeline
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.training import training_graph

LINK = Link(1e9, 1e-5)


def on_paper(ranks, stages, case, link=LINK, parts=None, shard="none"):
    """The layout of a drawn case in which everything is kept."""
    model, options, _ = stage_cases.drawn(ranks, stages, case)
    wanted = GradOptions(loss=options["loss"], train_mode=True, optimizer=options["optimizer"])
    recipe = Recipe(partial(training_graph, model), wanted)
    graphs = graphs_of(recipe, TrainOptions(optimizer=options["optimizer"]), in_two=True)
    replicas = ranks // stages
    if options["sync_batchnorm"]:
        graphs = graphs.planned(synchronized(graphs.model, replicas))
    parts = parts or options["micro_batches"]
    fixed = isinstance(model.graph.inputs[0].shape[0], int)
    dims = {} if fixed else {"batch": 8 // parts // replicas}
    paper = PaperTraining(graphs, recipe.updates, dims, link, step_seconds, parts, "numpy")
    return pipeline(paper, stages=stages, replicas=replicas, shard=shard)


@supported
@pytest.mark.parametrize(
    ("ranks", "stages", "shard"),
    sampled([(4, 2, "optimizer"), (2, 2, "none"), (4, 4, "none"), (4, 2, "none")]),
)
@pytest.mark.parametrize("case", swept(3, 1))
def test_each_stage_has_the_arena_that_was_planned(ranks, stages, shard, case):
    def work(group):
        model, options, _ = stage_cases.drawn(ranks, stages, case)
        how = {"steps": 2, "ema": None, "clip_norm": None, "lr_scale": (), "plan": "keep"}
        how |= {"kernels": "numpy", "shard": shard}
        with gt.Trainer(model, **options | how) as trainer:
            trainer.fit(DATA, group=group)
            return trainer.session.arena_bytes

    planned = [each.peak_bytes for each in on_paper(ranks, stages, case, shard=shard).stages]
    found = on_ranks(ranks, work)

    assert found[:stages] == planned
    if shard == "none":
        assert found == planned * (ranks // stages)


def test_more_micro_batches_take_a_smaller_share_of_waiting():
    few, many = (on_paper(2, 2, 1, Link(1e15, 0), parts) for parts in (1, 8))

    assert many.bubble < few.bubble
    assert few.bubble == pytest.approx(0.5, abs=0.01)
    assert [each.in_flight for each in few.stages] == [1, 1]
    assert [each.in_flight for each in many.stages] == [2, 1]


def test_a_slow_link_takes_longer_and_replicas_send_their_sums():
    fast, slow = (on_paper(4, 2, 1, Link(rate, 0)) for rate in (1e15, 1e3))
    alone = on_paper(2, 2, 1)

    assert slow.step > 10 * fast.step
    assert all(a.sent_bytes > b.sent_bytes for a, b in zip(fast.stages, alone.stages, strict=True))


@pytest.mark.parametrize(("ranks", "stages", "shard"), [
    (2, 2, "none"), (4, 2, "none"), (4, 2, "optimizer"),
])  # fmt: skip
def test_turns_and_what_lies_beside_them_are_the_whole_step(ranks, stages, shard):
    found = on_paper(ranks, stages, 1, shard=shard)
    for stage in range(stages):
        parts = [each for each in (*found.turns, *found.beside) if each.stage == stage]
        parts.sort(key=lambda each: each.start_seconds)

        assert all(a.end_seconds <= b.start_seconds + 1e-12 for a, b in pairwise(parts))
    kinds = {each.what for each in found.beside} - {"given"}
    assert kinds == {"update", *(["sums"] * (ranks > stages)), *(["parts"] * (shard != "none"))}
    assert max(each.end_seconds for each in found.beside) == found.step


def test_replicas_have_parts_of_the_state_of_a_stage_and_send_parameters():
    slow = Link(1e3, 0)
    whole, parts = (on_paper(4, 2, 1, slow, shard=shard) for shard in ("none", "optimizer"))

    for before, after in zip(whole.stages, parts.stages, strict=True):
        assert after.state_bytes < 0.75 * before.state_bytes
        assert after.parameters_bytes == before.parameters_bytes
        assert after.gradients_bytes == before.gradients_bytes
        assert after.sent_bytes > before.sent_bytes
    assert parts.step > whole.step


@pytest.fixture
def path(tmp_path):
    model, _, _ = stage_cases.drawn(2, 2, 0)
    gt.save(model, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


@pytest.fixture
def report(run):
    """Runs the command."""
    return lambda *given: run("report", *given, "--loss", "sum:y", "--train-mode")


def test_the_command_shows_stages_and_draws_their_turns(path, report, tmp_path):
    page = tmp_path / "page.html"
    given = (path, "--ranks", "4", "--stages", "2", "--micro-batches", "2")
    table = report(*given, "--html", str(page))
    document = json.loads(report(*given, "--format", "json").out)

    assert table.code == 0, table.err
    assert "a step of 2 micro-batches takes" in table.out
    jsonschema.validate(document, schema_named("stages"))
    assert len(document["stages"]) == 2
    assert len(document["turns"]) == 2 * 2 * 2
    text = page.read_text()
    for phase in ("forward", "backward"):
        assert text.count(f"<title>{phase} of micro-batch ") == 4
    assert text.count("<title>update: ") == 2
    assert "<script" not in text
    assert document["shard"] == "none"
    sharded = json.loads(report(*given, "--shard", "optimizer", "--format", "json").out)
    jsonschema.validate(sharded, schema_named("stages"))
    assert sharded["shard"] == "optimizer"
    again = report(*given, "--html", str(page))
    assert again.code == 2
    assert "exists" in again.err


@pytest.mark.parametrize(("given", "said"), [
    (("--stages", "2"), "--stages needs --ranks"),
    (("--ranks", "4", "--stages", "3"), "--stages 3 takes 3 ranks or a multiple of them, not 4"),
    (("--ranks", "2", "--stages", "2", "--shard", "optimizer"), "every stage is on one rank"),
    (("--ranks", "4", "--stages", "2", "--shard", "gradients"), "leave out --stages"),
    (("--ranks", "2", "--stages", "2", "--sync-batchnorm"), "every stage is on one rank"),
    (("--ranks", "4", "--html", "page.html"), "is a table of its own: leave out --html"),
    (("--ranks", "4", "--stages", "2", "--plan", "mirror", "--html", "a.html"), "leave out --plan"),
    (("--ranks", "128", "--stages", "64"), "take fewer stages"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(path, report, given, said):
    outcome = report(path, *given)

    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") <= 2


@pytest.mark.parametrize(("given", "said"), [
    (("--stages", "2"), "--stages needs --ranks or mpirun"),
    (("--ranks", "3", "--stages", "2"), "--stages 2 takes 2 ranks or a multiple of them, not 3"),
    (("--ranks", "2", "--stages", "2", "--shard", "optimizer"), "every stage is on one rank"),
    (("--ranks", "4", "--stages", "2", "--shard", "gradients"), "leave out --stages"),
    (("--ranks", "2", "--stages", "2", "--memory", "1GiB"), "leave out --memory"),
])  # fmt: skip
def test_training_refuses_them_before_a_rank_is_started(path, run, given, said):
    outcome = run("train", path, "--data", "none.npz", *given)

    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
