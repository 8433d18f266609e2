"""What ranks take on paper is what they take."""

import json
from functools import partial

import jsonschema
import pytest
from conftest import sampled
from forked_ranks import on_ranks, supported
from rank_cases import DATA, drawn
from rank_norms import network

import gradtool as gt
from gradtool.commands.schema import schema_named
from gradtool.passes.synchronized import synchronized
from gradtool.training.graphs import Recipe, graphs_of
from gradtool.training.layouts import OnPaper, PaperTraining, layout
from gradtool.training.links import Link, step_seconds
from gradtool.training.options import TrainOptions
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.training import training_graph

LINK = Link(1e9, 1e-5)
OPTIMIZERS = ("sgd", "momentum", "adamw", "lamb", "muon")


def on_paper(optimizer, rank, *, shard, parts=1, link=LINK):
    """The layout of one of four ranks, each of which computes two examples at once."""
    model, _, _ = drawn(4, 1)
    wanted = GradOptions(loss="ce", train_mode=True, optimizer=optimizer)
    recipe = Recipe(partial(training_graph, model), wanted)
    graphs = graphs_of(recipe, TrainOptions(optimizer=optimizer), in_two=True)
    dims = {"batch": 2} if isinstance(model.graph.inputs[0].shape[0].value, str) else {}
    paper = PaperTraining(graphs, recipe.updates, dims, link, step_seconds, parts)
    return layout(paper, OnPaper(rank, 4), shard=shard)


@pytest.mark.sample(5, 2)
@supported
@pytest.mark.parametrize("shard", ["none", "optimizer", "gradients"])
@pytest.mark.parametrize("optimizer", sampled(OPTIMIZERS))
def test_each_rank_has_the_arena_that_was_planned(shard, optimizer):
    options = {
        "optimizer": optimizer, "batch": 8, "steps": 2, "lr": 0.01, "train_mode": True,
        "loss": "ce", "shard": shard,
    }  # fmt: skip

    def work(group):
        model, _, _ = drawn(4, 1)
        with gt.Trainer(model, **options) as trainer:
            trainer.fit(DATA, group=group)
            return trainer.session.arena_bytes

    for rank, taken in enumerate(on_ranks(4, work)):
        assert on_paper(optimizer, rank, shard=shard).peak_bytes == taken


@supported
@pytest.mark.parametrize("seed", sampled(range(4)))
def test_statistics_of_all_ranks_are_planned_and_take_messages(seed):
    model, data, options = network(seed)
    options |= {"steps": 2, "sync_batchnorm": True, "plan": "keep", "micro_batches": 2}

    def work(group):
        with gt.Trainer(model, **options) as trainer:
            trainer.fit(data, group=group)
            return trainer.session.arena_bytes

    wanted = GradOptions(loss="ce", train_mode=True, optimizer=options["optimizer"])
    recipe = Recipe(partial(training_graph, model), wanted)
    graphs = graphs_of(recipe, TrainOptions(optimizer=options["optimizer"]), in_two=True)
    apart, whole = (
        layout(PaperTraining(each, recipe.updates, {"batch": 2}, LINK, step_seconds, 2),
               OnPaper(0, 4), shard="none")
        for each in (graphs, graphs.planned(synchronized(graphs.model, 4)))
    )  # fmt: skip

    assert on_ranks(4, work) == [whole.peak_bytes] * 4
    two_norms_in_two_halves = 2 * 4 * 3 * LINK.latency
    assert whole.sending_seconds > max(apart.sending_seconds, two_norms_in_two_halves)
    assert whole.sent_bytes > apart.sent_bytes


def test_a_rank_has_its_share_of_the_state_and_sends_more():
    ways = ("none", "optimizer", "gradients")
    held, sharded, summed = (on_paper("adamw", 0, shard=shard) for shard in ways)

    assert sharded.state_bytes < held.state_bytes
    assert held.parameters_bytes == sharded.parameters_bytes
    assert held.gradients_bytes == sharded.gradients_bytes
    assert summed.gradients_bytes < sharded.gradients_bytes
    assert summed.state_bytes < held.state_bytes
    assert sharded.sent_bytes > held.sent_bytes
    assert sharded.computing_seconds <= held.computing_seconds


def test_backward_covers_what_is_sent_but_for_the_last_bucket():
    fast, slow = (on_paper("sgd", 0, shard="none", link=Link(rate, 0)) for rate in (1e15, 1e3))

    assert fast.step_seconds == pytest.approx(fast.computing_seconds)
    assert slow.step_seconds > slow.sending_seconds > slow.computing_seconds
    assert slow.step_seconds <= (slow.sending_seconds + slow.computing_seconds) * (1 + 1e-9)


def test_micro_batches_compute_more_and_send_as_much():
    one, four = (on_paper("sgd", 0, shard="none", parts=parts) for parts in (1, 4))

    assert four.sent_bytes == one.sent_bytes
    assert four.computing_seconds > 2 * one.computing_seconds
    assert four.peak_bytes == one.peak_bytes


@pytest.fixture
def path(tmp_path):
    model, _, _ = drawn(4, 1)
    gt.save(model, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


@pytest.fixture
def report(run):
    """Runs the command."""
    return lambda *given: run("report", *given, "--loss", "ce")


def test_the_command_shows_both_ways_and_one(path, report):
    both = report(path, "--ranks", "64", "--batch", "128", "--optimizer", "adamw")
    one = report(path, "--ranks", "64", "--shard", "optimizer", "--format", "json", "--batch", "64",
                 "--link", "100Gbit/s", "--latency", "2us")  # fmt: skip

    assert both.code == 0, both.err
    assert "all held" in both.out
    assert "optimizer sharded" in both.out
    document = json.loads(one.out)
    assert [each["shard"] for each in document["layouts"]] == ["optimizer"]
    assert document["link_bytes_per_second"] == 12.5e9
    assert document["optimizer"] == "adamw"
    schema = schema_named("ranks")
    jsonschema.Draft202012Validator(schema).validate(document)
    each = document["layouts"][0]
    kinds = ("parameters", "gradients", "state", "rest")
    assert each["peak_bytes"] == sum(each[f"{kind}_bytes"] for kind in kinds)


def test_a_profile_has_the_time_of_nodes(path, tmp_path, report):
    names = [node.name for node in gt.grad(gt.load(path), loss="ce").model.graph]
    found = []
    for chosen in ([], names):
        nodes = {name: {"op": "?", "seconds": 1.0} for name in chosen}
        document = {"schema_version": 1, "repeats": 5, "nodes": nodes}
        (tmp_path / "p.json").write_text(json.dumps(document))
        told = report(path, "--ranks", "2", "--batch", "2", "--format", "json",
                      "--cost", str(tmp_path / "p.json"))  # fmt: skip
        found.append(json.loads(told.out)["layouts"][0]["computing_seconds"])

    assert found[0] < 1 < found[1]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--ranks", "3", "--batch", "8"], "a batch of 8 has no 3 parts"),
        (["--ranks", "2", "--link", "fast"], "'fast' is no rate of a link"),
        (["--ranks", "2", "--latency", "soon"], "'soon' is no latency"),
        (["--shard", "optimizer"], "--shard"),
        (["--ranks", "2", "--by", "op"], "--by"),
        (["--ranks", "2", "--cost", "none.json"], "none.json"),
    ],
)
def test_what_cannot_be_is_refused(path, given, says, report):
    found = report(path, *given)

    assert found.code == 2
    assert says in found.err


def test_a_graph_that_holds_its_gradients_is_refused(tmp_path, run):
    model, _, _ = drawn(4, 1)
    gt.save(gt.grad(model, loss="ce"), tmp_path / "made.onnx")
    found = run("report", tmp_path / "made.onnx", "--ranks", "2")

    assert found.code == 2
    assert "holds its gradients" in found.err
