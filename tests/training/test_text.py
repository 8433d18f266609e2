"""Texts as data: forms, labels, lengths, padding, packing, and a sentence for each mistake."""

import numpy as np
import onnx
import pytest
from decoders import Options, decoder
from forked_ranks import on_ranks, supported
from onnx import TensorProto
from texts import (
    CHATML,
    CHATS,
    OPTIONS,
    SHORT,
    WORDS,
    chat,
    fitted,
    model,
    write_lines,
    write_model,
    write_tokenizer,
)

import gradtool as gt
from gradtool.errors import NoRoom, UsageError
from gradtool.exec import available_memory
from gradtool.training.callbacks import Watcher

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.extra

PAD, START, END = (WORDS.index(each) for each in ("<pad>", "<|im_start|>", "<|im_end|>"))


@pytest.fixture
def net(tmp_path):
    return write_model(tmp_path / "net")


def ids(text):
    return [WORDS.index(word) for word in text.split()]


def learned(batch, row=0):
    return [WORDS[token] for token in batch["labels"][row] if token != -100]


# --------------------------------------------------------------------------------- forms


def test_messages_fill_each_input_by_its_name(net, tmp_path):
    _, batch, _ = fitted(net, write_lines(tmp_path / "a.jsonl", CHATS))
    text = ids("<|im_start|> user what is the color ? <|im_end|> "
               "<|im_start|> assistant red . <|im_end|>")  # fmt: skip
    more = [0] * (batch["input_ids"].shape[1] - len(text))

    assert batch["input_ids"][0].tolist() == text + [PAD] * len(more)
    assert batch["attention_mask"][0].tolist() == [1] * len(text) + more
    assert batch["position_ids"][0].tolist() == [*range(len(text)), *more]
    assert batch["labels"][0].tolist() == [*text[1:], *[-100] * (len(more) + 1)]


def test_the_losses_of_labels_that_data_and_that_the_loss_shifts_are_the_same(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    of_loss, batch, watcher = fitted(net, data, loss="ce:logits@shift=1", mask_prompt=True)

    assert of_loss.losses == fitted(net, data, mask_prompt=True)[0].losses
    assert batch["labels"][0][:9].tolist() == [-100] * 9
    assert learned(batch) == ["assistant", "red", ".", "<|im_end|>"][1:]
    assert not any("repeat" in line for line in watcher.lines)


def test_masked_prompts_leave_what_the_assistant_says(net, tmp_path):
    _, batch, watcher = fitted(net, write_lines(tmp_path / "a.jsonl", CHATS), mask_prompt=True)

    assert learned(batch, 1) == ["one", "two", ".", "<|im_end|>", "no", ".", "no", "<|im_end|>"]
    assert any("of which" in line for line in watcher.lines)


def test_a_text_that_ends_otherwise_alone_teaches_no_word_of_the_next_turn(tmp_path):
    ended = CHATML + "{% if not add_generation_prompt %}{{ '</s>' }}{% endif %}"
    net = write_model(tmp_path / "net", ended)
    _, batch, _ = fitted(net, write_lines(tmp_path / "a.jsonl", CHATS), mask_prompt=True)

    first, last = ["one", "two", ".", "<|im_end|>"], ["no", ".", "no", "<|im_end|>"]
    assert learned(batch, 1) == [*first, *last, "</s>"]


def test_who_listens_hears_of_each_text_that_is_read(net, tmp_path):
    heard = []

    class Counts(Watcher):
        def tokenizes(self, source, texts, tokens):
            heard.append((source, texts, tokens))

    data = write_lines(tmp_path / "a.jsonl", CHATS)
    with gt.Trainer(net, **OPTIONS) as trainer:
        trainer.fit(data, watcher=Counts())
        rows = trainer._loop.data.texts.text.tokens

    assert [texts for _, texts, _ in heard] == [*range(1, len(CHATS) + 1)]
    assert heard[-1] == (str(data), len(CHATS), len(rows.ids))


def test_prompts_and_completions_end_in_the_token_of_the_end(net, tmp_path):
    rows = [{"prompt": "what is the color ? ", "completion": "red ."}] * 8
    data = write_lines(tmp_path / "a.jsonl", rows)

    assert learned(fitted(net, data, mask_prompt=True)[1]) == ["red", ".", "</s>"]
    assert learned(fitted(net, data)[1]) == ["is", "the", "color", "?", "red", ".", "</s>"]


def test_plain_texts_are_cut_into_windows(net, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("what is the color ? red green blue .\n" * 9)
    history, batch, watcher = fitted(net, path, max_length=8)

    assert batch["input_ids"].tolist() == np.resize(ids(path.read_text()), (4, 8)).tolist()
    assert batch["attention_mask"].all()
    assert watcher.about.per_epoch == 2
    assert any("last 1 tokens" in line for line in watcher.lines)
    assert history.losses[0] > 0


def test_columns_beside_texts_are_labels_of_a_class(tmp_path):
    net = write_tokenizer(tmp_path / "net") / "model.onnx"
    made = model(causal=False)
    made.graph.node.append(
        onnx.helper.make_node("ReduceMean", ["logits", "one"], ["score"], keepdims=0)
    )
    kind = onnx.helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 40])
    made.graph.output.pop()
    made.graph.output.append(kind)
    onnx.save(made, net)
    rows = [{"text": "red green blue", "kind": "a"}, {"text": "one two three", "kind": "b"}] * 4
    data = write_lines(tmp_path / "a.jsonl", rows)
    with gt.Trainer(net, loss="ce:score", batch=4, steps=2, categories=["kind"]) as trainer:
        trainer.fit(data, names={"labels": "kind"}, evaluate=data)
        batch = trainer._loop.data.batch(np.arange(2))

        assert batch["labels"].tolist() == [0, 1]
        assert trainer._loop.data.classes == {"labels": ["a", "b"]}


def test_numbers_beside_a_text_stay_a_table(tmp_path):
    rows = [{"x": [1.0, 2.0], "labels": n % 2, "text": "a note"} for n in range(8)]
    data = write_lines(tmp_path / "a.jsonl", rows)
    x = onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])
    weights = [onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], weights)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    with gt.Trainer(gt.load(made), loss="ce:y", batch=4) as trainer:
        assert len(trainer.fit(data).losses) == 2


# ------------------------------------------------------------------------------- lengths


def test_batches_have_a_few_widths_and_rows_of_about_their_length(net, tmp_path):
    rows = [chat("what " * (n % 40), "red") for n in range(80)]
    data = write_lines(tmp_path / "a.jsonl", rows)
    with gt.Trainer(net, **OPTIONS | {"lengths": "16,32,48"}) as trainer:
        trainer.fit(data)
        bound, order = trainer._loop.data, trainer._loop.setup.order
        batches = [bound.batch(each) for each in order.epoch(0)]

    assert {each["input_ids"].shape[1] for each in batches} == {16, 32, 48}
    spread = [np.ptp(each["attention_mask"].sum(1)) for each in batches]
    assert max(spread) < 10


def test_padding_does_not_change_a_gradient(net, tmp_path):
    one = write_lines(tmp_path / "a.jsonl", [SHORT] * 4)
    narrow = fitted(net, one, steps=3)[0].losses
    wide = fitted(net, one, steps=3, lengths="48")[0].losses

    assert wide == pytest.approx(narrow, rel=1e-5)


@pytest.mark.parametrize("length", ["length", 48])
def test_a_model_that_padding_changes_is_refused(tmp_path, length):
    net = write_model(tmp_path / "net", causal=False, inputs=(), length=length)
    data = write_lines(tmp_path / "a.jsonl", CHATS)

    with pytest.raises(UsageError, match="padding changes"):
        fitted(net, data)


def test_a_model_that_sees_what_it_is_to_predict_is_refused(tmp_path):
    net = write_model(tmp_path / "net", causal=False)
    same = write_lines(tmp_path / "a.jsonl", [SHORT] * 4)

    with pytest.raises(UsageError, match="sees the tokens that it is to predict"):
        fitted(net, same, lengths="13")


def test_labels_that_are_the_tokens_are_refused(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)

    with pytest.raises(UsageError, match="a name of their own"):
        fitted(net, data, loss="ce:logits@shift=1", labels="input_ids")


@pytest.mark.parametrize("mask", [TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT])
def test_a_mask_has_the_type_of_its_input(tmp_path, mask):
    net = write_model(tmp_path / "net", mask=mask, length=32)
    batch = fitted(net, write_lines(tmp_path / "a.jsonl", CHATS))[1]

    assert batch["attention_mask"].dtype == onnx.helper.tensor_dtype_to_np_dtype(mask)
    assert batch["attention_mask"].sum(1).tolist()[:2] == [13, 22]
    assert batch["input_ids"].shape[1] == 32


def test_packed_rows_hold_whole_texts_and_positions_of_their_own(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    _, batch, watcher = fitted(net, data, pack=True, max_length=40, batch=2)
    position, tokens = batch["position_ids"][0], batch["input_ids"][0]
    starts = np.flatnonzero((position == 0) & (batch["attention_mask"][0] == 1))

    assert len(starts) > 1
    assert set(tokens[starts].tolist()) == {START}
    assert set(tokens[starts[1:] - 1].tolist()) == {END}
    assert (batch["labels"][0][starts[1:] - 1] == -100).all()
    assert any("see those before them" in line for line in watcher.lines)  # a running sum


@pytest.mark.parametrize("length", ["sequence_length", 40])
def test_packed_texts_are_apart_for_attention(tmp_path, length):
    net = write_tokenizer(tmp_path / "net") / "model.onnx"
    made = decoder(Options(heads=4, groups=2, words=40, most=64))
    for value in made.graph.input[:2]:
        if length == 40:
            value.type.tensor_type.shape.dim[1].dim_value = 40
    onnx.save(made, net)
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    options = {"loss": "causal", "pack": True, "max_length": 40, "batch": 2, "mask_prompt": True}
    _, batch, watcher = fitted(net, data, **options)
    starts = np.flatnonzero(np.diff(batch["documents"][0], prepend=-1) > 0)

    assert not any("see those before them" in line for line in watcher.lines)
    assert set(batch["input_ids"][0][starts].tolist()) == {START}
    assert len(starts) > 1


def test_packing_changes_no_text(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    with gt.Trainer(net, **OPTIONS | {"pack": True, "max_length": 40, "batch": 2}) as trainer:
        trainer.fit(data)
        rows = trainer._loop.data.texts.text.tokens

    texts = np.split(rows.ids, rows.documents[1:])
    found = {"".join(map(chr, each)): 0 for each in texts}
    assert len(texts) == len(CHATS)
    assert len(found) == 3
    assert rows.lengths.max() <= 40
    assert np.isin(rows.starts[:-1], rows.documents).all()


@pytest.mark.parametrize(("how", "rows", "said"), [("cut", 12, "4 texts"), ("skip", 8, "left out")])
def test_texts_that_are_too_long_are_cut_or_left_out(net, tmp_path, how, rows, said):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    _, batch, watcher = fitted(net, data, max_length=14, too_long=how)

    assert watcher.about.per_epoch == rows // 4
    assert batch["input_ids"].shape[1] <= 14
    assert any(said in line for line in watcher.lines)


def test_the_length_is_that_of_the_model(tmp_path):
    net = write_model(tmp_path / "net", length=16, batch=2)
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    _, batch, _ = fitted(net, data, batch=2)

    assert batch["input_ids"].shape[1] == 16
    with pytest.raises(UsageError, match="takes 16 tokens at most"):
        fitted(net, data, max_length=17)


def test_a_memory_is_kept_to_by_one_width(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    history, batch, _ = fitted(net, data, memory="8MiB")

    assert batch["input_ids"].shape[1] == 22
    assert len(history.losses) == 4


def test_tokens_of_a_step_are_told(net, tmp_path):
    _, batch, watcher = fitted(net, write_lines(tmp_path / "a.jsonl", [SHORT] * 8))

    assert watcher.about.tokens == 4 * 13
    assert batch["attention_mask"].sum() == 4 * 13


# ---------------------------------------------------------------------- going on, and parts


@pytest.mark.parametrize("options", [{}, {"pack": True, "max_length": 40, "batch": 2}])
def test_a_training_on_texts_goes_on_to_the_same_bits(net, tmp_path, options):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    whole, part = tmp_path / "whole", tmp_path / "part"
    options = OPTIONS | {"mask_prompt": True, "steps": 7} | options
    with gt.Trainer(net, **options) as trainer:
        trainer.fit(data, run=whole)
        weights = trainer.weights()

    class Stop(Watcher):
        def __init__(self):
            self.steps = 0

        def stops(self):
            self.steps += 1
            return self.steps == 3

    with gt.Trainer(net, **options) as trainer:
        assert trainer.fit(data, run=part, watcher=Stop()).ended == "interrupted"
    with gt.Trainer(net, **options) as trainer:
        trainer.fit(data, run=part, resume=True)
        found = trainer.weights()

    assert all(np.array_equal(found[name], each) for name, each in weights.items())


def test_another_template_is_another_training(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    with gt.Trainer(net, **OPTIONS) as trainer:
        trainer.fit(data, run=tmp_path / "run")
    write_tokenizer(net.parent, CHATML.replace("<|im_end|>", "</s>"))

    with (
        gt.Trainer(net, **OPTIONS | {"steps": 6}) as trainer,
        pytest.raises(UsageError, match="tokens"),
    ):
        trainer.fit(data, run=tmp_path / "run", resume=True)


def test_held_out_texts_are_evaluated_whatever_their_batches(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    other = write_lines(tmp_path / "b.jsonl", CHATS[:5])
    split = fitted(net, data, split="25%", epochs=1, steps=None)[0]
    found = [
        fitted(net, data, other, batch=batch, steps=1, lr=0.0, mask_prompt=True)[0].evaluations
        for batch in (2, 4)
    ]  # fmt: skip

    assert len(split.evaluations) == 1
    assert found[0][0][1]["loss"] == pytest.approx(found[1][0][1]["loss"], rel=1e-6)


def test_several_processes_take_texts_apart_to_the_same_tokens(net, tmp_path, monkeypatch):
    monkeypatch.setattr("gradtool.training.tokenizer_pool.PIECE", 300)
    data = write_lines(tmp_path / "a.jsonl", [chat("what " * (n % 9), "red") for n in range(40)])
    found = [fitted(net, data, workers=workers, mask_prompt=True) for workers in (1, 3)]

    assert found[0][0].losses == found[1][0].losses
    assert np.array_equal(found[0][1]["labels"], found[1][1]["labels"])


def test_parts_of_a_step_are_the_step(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    whole, parts = (
        fitted(net, data, mask_prompt=True, micro_batches=n)[0].losses for n in (1, 2)
    )  # fmt: skip

    assert parts == pytest.approx(whole, rel=1e-5)


@supported
def test_ranks_take_shares_of_texts(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)

    def work(group):
        with gt.Trainer(net, **OPTIONS | {"mask_prompt": True}) as trainer:
            losses = trainer.fit(data, **({} if group is None else {"group": group})).losses
            return losses, trainer.weights()

    alone = work(None)
    for losses, weights in on_ranks(2, work):
        assert losses == pytest.approx(alone[0], rel=1e-5)
        for name, array in weights.items():
            assert np.allclose(array, alone[1][name], atol=1e-5), name


@pytest.mark.parametrize("how", ["messages", "text"])
def test_tokens_are_those_of_transformers(net, tmp_path, how):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(net.parent)
    text = " ".join(WORDS[6:])
    rows = CHATS if how == "messages" else [{"text": text}] * 4
    _, batch, _ = fitted(net, write_lines(tmp_path / "a.jsonl", rows))
    found = batch["input_ids"][0][batch["attention_mask"][0] == 1].tolist()

    if how == "messages":
        wanted = theirs.apply_chat_template(SHORT["messages"], return_dict=False)
    else:
        wanted = [*theirs(text)["input_ids"], theirs.eos_token_id]
    assert found == wanted


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("loss", ["ce:logits", "ce:logits@shift=1"])
def test_what_a_model_sees_is_told_by_a_few_tokens_of_long_rows(tmp_path, causal, loss):
    net = write_model(tmp_path / "net", causal=causal, inputs=("attention_mask",))
    long = chat("what is " * 60, "red green blue " * 9)
    data = write_lines(tmp_path / "a.jsonl", [long] * 8)
    with gt.Trainer(net, **OPTIONS | {"loss": loss, "mask_prompt": True}) as trainer:
        if causal:
            assert trainer.fit(data).losses
        else:
            with pytest.raises(UsageError, match="sees the tokens"):
                trainer.fit(data)
            return
        bound = trainer._loop.data
        batch, others = bound.texts.trial(bound.batch, None)

    assert batch["input_ids"].shape == (1, 32)
    assert (batch["labels"] != -100).sum() > 3
    (changed,) = (each["input_ids"] != batch["input_ids"] for each in others.values()
                  if each["input_ids"].shape == (1, 32))  # fmt: skip
    assert changed.sum() > 5
    assert not changed[:, : np.flatnonzero(batch["labels"] != -100).max() + 1].any()


def test_memory_for_the_widest_batch_is_taken_before_the_first_step(net, tmp_path, monkeypatch):
    short = [{"text": "the color ."}] * 40
    data = write_lines(tmp_path / "a.jsonl", [*short, {"text": "one two . " * 20}])
    asked = []
    monkeypatch.setattr(available_memory, "CHECKED", 0)
    monkeypatch.setattr(available_memory, "free", lambda: 2**40)
    require = available_memory.require
    monkeypatch.setattr(
        available_memory, "require", lambda size, what: (asked.append(size), require(size, what))
    )
    history, _, _ = fitted(net, data, batch=4, shuffle=False, steps=11)
    most = max(asked)

    monkeypatch.setattr(available_memory, "free", lambda: most - 1)
    options = OPTIONS | {"batch": 4, "shuffle": False, "steps": 11}
    with gt.Trainer(net, **options) as trainer, pytest.raises(NoRoom):
        trainer.fit(data)
    assert len(history.losses) == 11
    assert trainer.lost is None  # no step was taken
