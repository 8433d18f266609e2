"""Small language models, tokenizers and templates, written by hand."""

import json

import numpy as np
import onnx
from onnx import TensorProto, helper

import gradtool as gt
from gradtool.training.callbacks import Watcher

WORDS = [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "user",
    "assistant",
    "system",
    "red",
    "green",
    "blue",
    "one",
    "two",
    "three",
    "what",
    "is",
    "the",
    "color",
    "number",
    "?",
    ".",
    ":",
    "yes",
    "no",
]
SPECIALS = WORDS[:6]
VOCABULARY, WIDTH = 40, 8
CHATML = (
    "{% for message in messages %}{{ '<|im_start|> ' + message['role'] + ' ' + message['content'] "
    "+ ' <|im_end|> ' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|> assistant ' }}"
    "{% endif %}"
)


def tokenizer(words=WORDS, **more):
    """A tokenizer of words as a document: `more` are further parts of it."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": n, "content": word, "special": True, **special}
        for n, word in enumerate(words) if word in SPECIALS
    ]  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": None, "model": {
            "type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)},
            "unk_token": "<unk>",
        },
        **more,
    }  # fmt: skip


def write_tokenizer(folder, template=CHATML, words=WORDS, **more):
    """Write a folder of a tokenizer, with a template in its configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(words, **more)))
    config = {
        "eos_token": "</s>",
        "bos_token": {"content": "<s>", "__type": "AddedToken"},
        "pad_token": "<pad>",
    }
    config |= {} if template is None else {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_lines(path, rows):
    """Write a JSON object a line; a text stands as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def drawn(*shape):
    return (np.random.default_rng(shape).standard_normal(shape) * 0.3).astype(np.float32)


def model(*, causal=True, inputs=("attention_mask", "position_ids"), batch="batch",
          length="length", vocabulary=VOCABULARY, mask=TensorProto.INT64):  # fmt: skip
    """Scores of the next token from the sum, or else the mean, of those that a place sees."""
    node = helper.make_node
    nodes = [node("Gather", ["table", "input_ids"], ["x0"])]
    if "position_ids" in inputs:
        nodes += [
            node("Gather", ["places", "position_ids"], ["p"]),
            node("Add", ["x0", "p"], ["x1"]),
        ]
    else:
        nodes += [node("Identity", ["x0"], ["x1"])]
    if "attention_mask" in inputs:
        nodes += [
            node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["m", "axis"], ["wide"]), node("Mul", ["x1", "wide"], ["x2"]),
        ]  # fmt: skip
    else:
        nodes += [node("Identity", ["x1"], ["x2"])]
    if causal:
        nodes += [node("CumSum", ["x2", "along"], ["seen"])]
    else:
        nodes += [node("ReduceMean", ["x2", "one"], ["all"]), node("Add", ["x2", "all"], ["seen"])]
    nodes += [node("Tanh", ["seen"], ["h"]), node("MatMul", ["h", "head"], ["logits"])]
    types = {
        "input_ids": TensorProto.INT64,
        "position_ids": TensorProto.INT64,
        "attention_mask": mask,
    }
    values = [
        helper.make_tensor_value_info(name, types[name], [batch, length])
        for name in ("input_ids", *inputs)
    ]
    weights = {
        "table": drawn(vocabulary, WIDTH), "head": drawn(WIDTH, vocabulary),
        "places": drawn(64, WIDTH), "axis": np.array([2]), "along": np.array(1),
        "one": np.array([1]),
    }  # fmt: skip
    read = {name for each in nodes for name in each.input}
    made = helper.make_graph(
        nodes, "text", values,
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, length, vocabulary])],
        [onnx.numpy_helper.from_array(each, n) for n, each in weights.items() if n in read],
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def write_model(folder, template=CHATML, **how):
    """Write a model with a tokenizer beside it; the path of the model."""
    write_tokenizer(folder, template)
    onnx.save(model(**how), folder / "model.onnx")
    return folder / "model.onnx"


def chat(*turns):
    """A conversation of user and assistant in turn."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": t} for n, t in enumerate(turns)]}


SHORT, LONG = chat("what is the color ?", "red ."), chat("what ?", "one two .", "yes ?", "no . no")
CHATS = [SHORT, LONG, chat("what is the number ?", "three .")] * 4
OPTIONS = {"loss": "ce:logits", "batch": 4, "steps": 4, "lr": 0.05}


class Said(Watcher):
    def __init__(self):
        self.lines, self.about = [], None

    def said(self, line):
        self.lines.append(line)

    def begun(self, begun):
        self.about = begun


def fitted(path, data, evaluate=None, **options):
    """Losses, the examples [0, 1, ...] as a batch, and what was said."""
    watcher = Said()
    with gt.Trainer(path, **OPTIONS | options) as trainer:
        history = trainer.fit(data, evaluate=evaluate, watcher=watcher)
        bound = trainer._loop.data
        return history, bound.batch(np.arange(min(bound.examples, 4))), watcher
