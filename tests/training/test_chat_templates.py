"""Templates of strangers are rendered as transformers does, within limits, and do nothing else."""

import json
import time
from pathlib import Path

import pytest
from texts import CHATML, chat

from gradtool.errors import UsageError
from gradtool.training.text_files import TextFile
from gradtool.training.tokenizer import TokenizerFiles, TokenizerProcess

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
FOUR = chat("what is it?", " red ", "and now?", "green\n")["messages"]
SYSTEM = [{"role": "system", "content": "Be short."}, *FOUR]
LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}\
{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate') }}
{% endif %}
{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}\
{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
LAST_THINKS = """{% for message in messages %}
{{ '[' + message.role + ']' }}
{%- if message.role == 'assistant' and loop.last %}{{ '<think></think>' }}{% endif %}
{{ message.content + '[end]' }}
{% endfor %}
{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"""
MARKED = """{% for message in messages %}{{ message.role + ':' }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content + '.' }}{% endgeneration %}
{% else %}{{ message.content + '.' }}{% endif %}{% endfor %}"""
ENDED = CHATML + "{% if not add_generation_prompt %}{{ '</s>' }}{% endif %}"
TOOLS = "{% for m in messages %}{{ m | tojson }}{{ m | tojson(indent=2) }}{% endfor %}{{ tools }}"
GOOD = {"chatml": CHATML, "llama": LLAMA, "gemma": GEMMA, "last": LAST_THINKS, "ended": ENDED,
        "marked": MARKED, "tools": TOOLS}  # fmt: skip

# By what they try; each is a line within seconds.
FORBIDDEN = {
    "__class__": "{{ ''.__class__.__mro__ }}", "attr": "{{ ''|attr('__class__') }}",
    "globals": "{{ raise_exception.__globals__ }}", "self": "{{ self.__init__.__globals__ }}",
    "popen": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "map": "{{ [messages]|map(attribute='__class__')|list }}",
    "groupby": "{{ messages|groupby('__class__') }}", "change": "{{ messages.append(1) }}",
    "macro": "{% macro a() %}{% endmacro %}{{ a._func.__globals__ }}",
}  # fmt: skip
ENDLESS = {
    "range": "{% for a in range(10**9) %}x{% endfor %}",
    "text": "{{ 'a' * 10**10 }}", "computed": "{% set n = 10**9 %}{{ 'a' * n * n }}",
    "content": "{{ messages[0].content * 2000000000 }}", "list": "{{ messages * 10**9 }}",
    "width": "{{ '%2000000000s' % 'x' }}", "format": "{{ '{:>2000000000}'.format('x') }}",
    "center": "{{ 'a'|center(2000000000) }}", "batch": "{{ 'a'|batch(10**9, 'x')|list }}",
    "replace": "{{ ('a' * 1000000)|replace('a', 'b' * 100000) }}",
    "doubled": "{% set n = namespace(x='a') %}{% for a in range(60) %}{% set n.x = n.x ~ n.x %}"
               "{% endfor %}{{ n.x }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "loops": "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "nested": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "output": "{% for a in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
}  # fmt: skip
ELSEWHERE = {
    "include": "{% include '/etc/passwd' %}", "import": "{% import 'os' as os %}{{ os }}",
    "extends": "{% extends '/etc/passwd' %}", "open": "{{ open('/etc/passwd').read() }}",
    "day": "{{ strftime_now('%Y') }}", "chance": "{{ [1, 2]|random }}",
    "words": "{{ lipsum(n=10**6) }}", "unknown": "{{ nothing.at.all }}", "syntax": "{% for %}",
}  # fmt: skip


def written(template, messages=FOUR, *, masks=False, tools=None):
    files = TokenizerFiles(Path("a/tokenizer.json"), SPECIALS, template)
    with TokenizerProcess(files, tokenizes=False, chats=True) as process:
        return process.written({"messages": messages, "tools": tools, "masks": masks})


def spoken(template, messages=FOUR):
    """What of a conversation is taken for the assistant's."""
    text, spans = written(template, messages, masks=True)
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize("name", [*FORBIDDEN, *ENDLESS, *ELSEWHERE])
def test_a_hostile_template_is_refused_in_a_line(name):
    template = {**ELSEWHERE, **ENDLESS, **FORBIDDEN}[name]
    began = time.monotonic()

    with pytest.raises(UsageError, match="the chat template") as refused:
        written(template)
    assert ("is forbidden" in str(refused.value)) == (name in FORBIDDEN)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert time.monotonic() - began < 30  # on a machine with other work


def test_a_loop_without_end_is_ended():
    inner = "{% for b in range(99999) %}{% set c = a * b %}{% endfor %}"

    with pytest.raises(UsageError, match="takes longer than it may"):
        written("{% for a in range(99999) %}" + inner + "{% endfor %}")


def test_a_power_without_end_is_ended():
    with pytest.raises(UsageError, match=r"takes longer|more memory"):
        written("{% set n = messages|length %}{{ n ** (n ** (n ** n)) }}")


def test_a_template_sees_no_variables_of_the_process(monkeypatch):
    monkeypatch.setenv("SECRET_OF_MINE", "tell-nobody")

    with pytest.raises(UsageError, match="undefined"):
        written("{{ environ['SECRET_OF_MINE'] }}")


def test_a_process_that_was_refused_goes_on():
    files = TokenizerFiles(Path("a/tokenizer.json"), SPECIALS, "{{ messages[0].n * 'a' }}")
    with TokenizerProcess(files, tokenizes=False, chats=True) as process:
        with pytest.raises(UsageError, match="memory"):
            process.written({"messages": [{"n": 10**10}], "tools": None, "masks": False})
        found = process.written({"messages": [{"n": 3}], "tools": None, "masks": False})

    assert found == ("aaa", None)


def test_a_template_that_refuses_is_heard():
    with pytest.raises(UsageError, match="System role not supported"):
        written(GEMMA, SYSTEM)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("chatml", " red  <|im_end|> ", "green\n <|im_end|> "),
        ("llama", "red<|eot_id|>", "green<|eot_id|>"),
        ("gemma", "red<end_of_turn>\n\n", "green<end_of_turn>\n\n"),
        ("last", " red [end]\n", "<think></think>green\n[end]\n"),
        ("marked", " red .", "green\n."),
    ],
)
def test_what_the_assistant_says_is_what_is_learned(name, first, last):
    assert spoken(GOOD[name]) == [first, last]


def test_a_template_that_hides_whose_text_is_whose_is_refused():
    counts = "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}"

    with pytest.raises(UsageError, match="generation"):
        spoken(counts)
    assert written(counts)[0] == "4what is it? red and now?green\n"


def test_texts_with_marks_of_ours_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(chat("a", "b\ufdd0c")))

    with pytest.raises(UsageError, match=r"line 1: message 1: .*FDD0"):
        list(TextFile.of(path).requests(masks=False))


@pytest.mark.extra
@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("name", GOOD)
def test_texts_are_those_of_transformers(name, prompt):
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    template = GOOD[name]
    messages = FOUR[:3] if prompt else FOUR
    for each in (messages, SYSTEM[: len(messages) + 1] if name != "gemma" else messages):
        ours = written(template.replace("add_generation_prompt", str(prompt).lower()), each)[0]
        compiled = utils._compile_jinja_template(
            template.replace("strftime_now is defined", "false")
        )
        theirs = compiled.render(messages=each, tools=None, documents=None,
                                 add_generation_prompt=prompt, **SPECIALS)  # fmt: skip

        assert ours == theirs


@pytest.mark.extra
def test_marked_texts_are_those_of_transformers():
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    rendered, spans = utils.render_jinja_template(
        [FOUR], chat_template=MARKED, return_assistant_tokens_mask=True, **SPECIALS
    )

    assert written(MARKED, masks=True) == (rendered[0], [tuple(each) for each in spans[0]])
