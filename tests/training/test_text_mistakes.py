"""What is wrong with texts, tokenizers and templates is one line before the first step."""

import json

import pytest
from texts import CHATS, SHORT, WORDS, chat, fitted, write_lines, write_model, write_tokenizer

from gradtool.errors import UsageError

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.extra


@pytest.fixture
def net(tmp_path):
    return write_model(tmp_path / "net")


WRONG = {
    "no role": ([SHORT, {"messages": [{"content": "a"}]}], "line 2: message 0 has no role"),
    "no JSON": ([SHORT, "{nope"], "line 2 is no JSON"),
    "another form": ([SHORT, {"text": "red"}], "line 2 has no 'messages'"),
    "no messages": ([SHORT, {"messages": []}], "line 2: 'messages' is no list"),
    "no text": ([{"text": "red one"}, {"text": 3}], "line 2: 'text' is no text"),
    "an empty text": ([{"text": "red one"}, "", {"text": ""}], "line 3: no token"),
    "parts": (
        [{"messages": [{"role": "user", "content": ["a"]}]}],
        "line 1: message 0: its content",
    ),
    "a half": (['{"text": "red \\ud800"}'], "line 1: 'text' holds half of a surrogate"),
    "depth": ([{"text": "a b"}, '{"text": "a", "x": ' + "[" * 9**5 + "}"], "line 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_named_before_the_first_step(net, tmp_path, name):
    rows, said = WRONG[name]

    with pytest.raises(UsageError, match=f"a.jsonl: {said}"):
        fitted(net, write_lines(tmp_path / "a.jsonl", rows))


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_what_is_no_text_is_named(net, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b'{"text": "red one"}\n{"text": "\xff"}\n')

    with pytest.raises(UsageError, match=f"{name}: line 2 is not UTF-8"):
        fitted(net, path)


def test_a_prompt_that_leaves_nothing_to_learn_is_named(net, tmp_path):
    asked = {"messages": [{"role": "user", "content": "what ?"}]}
    data = write_lines(tmp_path / "a.jsonl", [SHORT, asked])

    with pytest.raises(UsageError, match=r"line 2: no token is to be learned$"):
        fitted(net, data, mask_prompt=True)
    with pytest.raises(UsageError, match=r"line 1: no token within the first 4 .*--too-long skip"):
        fitted(net, data, mask_prompt=True, max_length=4)


def test_a_long_text_is_refused_where_that_is_asked_for(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)

    with pytest.raises(UsageError, match="line 2: has 22 tokens, more than 14"):
        fitted(net, data, max_length=14, too_long="refuse")


def test_a_tokenizer_of_another_model_is_refused(net, tmp_path):
    other = write_tokenizer(tmp_path / "other", words=[*WORDS, *(f"w{n}" for n in range(60))])
    data = write_lines(tmp_path / "a.jsonl", [SHORT, chat("w59 ?", "red")])

    with pytest.raises(UsageError, match=r"line 2: token 8\d is beyond the vocabulary.*40 tokens"):
        fitted(net, data, tokenizer=other)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tokenizer.json", "tokenizer.json"),
        ("tokenizer_config.json", "tokenizer_config.json: is no"),
    ],
)
@pytest.mark.parametrize("content", ["", "[", '{"version": 1}', "[" * 10**5, "\0" * 99])
def test_damaged_files_of_a_tokenizer_are_one_line(net, tmp_path, name, said, content):
    if name.endswith("config.json") and content.startswith("{"):
        return
    (net.parent / name).write_text(content)

    with pytest.raises(UsageError, match=said) as refused:
        fitted(net, write_lines(tmp_path / "a.jsonl", CHATS))
    assert "\n" not in str(refused.value)


def test_what_is_missing_is_named(net, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", CHATS)
    bare = write_tokenizer(tmp_path / "bare", None)
    (tmp_path / "empty").mkdir()

    for given, said in ((bare, "no chat template"), (tmp_path / "empty", "there is no tokenizer"),
                        (tmp_path / "none", "no such file")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            fitted(net, data, tokenizer=given)
    (net.parent / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"no tokenizer.json beside the model.*give --tokenizer"):
        fitted(net, data)


def test_options_of_texts_need_texts(net, tmp_path):
    plain = tmp_path / "a.txt"
    plain.write_text("red green " * 99)

    with pytest.raises(UsageError, match="--mask-prompt needs prompts or messages"):
        fitted(net, plain, mask_prompt=True)
    with pytest.raises(UsageError, match="--pack needs a file of texts"):
        fitted("samples/transformer.onnx", "samples/transformer.npz", pack=True)


def test_a_hostile_tokenizer_is_ended(net, tmp_path):
    grows = [{"type": "Replace", "pattern": {"String": "r"}, "content": "rr"}] * 60
    found = json.loads((net.parent / "tokenizer.json").read_text())
    found["normalizer"] = {"type": "Sequence", "normalizers": grows}
    (net.parent / "tokenizer.json").write_text(json.dumps(found))

    with pytest.raises(UsageError, match=r"line 1: .*(memory|longer)"):
        fitted(net, write_lines(tmp_path / "a.jsonl", CHATS))
