import subprocess
import sys
from pathlib import Path

import gates
import pytest

from gradtool import __version__
from gradtool.commands import group
from gradtool.workloads import opening

SAMPLES = Path(__file__).parents[1] / "samples"
MOST_MODULES = 262  # of gradtool, in `grad` of the CNN
HEAVY = ("numpy", "onnx", "onnx_ir", "rich", "scipy", "onnxruntime", "sympy")
IMPORTS = """
import sys
from gradtool.cli import run
code = run(sys.argv[1:])
print([name for name in {heavy} if name in sys.modules], code, file=sys.stderr)
"""


def imported_by(*arguments):
    program = IMPORTS.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1]


@pytest.mark.sample(4)
@pytest.mark.parametrize("command", [None, *group.COMMANDS])
def test_help_imports_nothing_heavy(command):
    arguments = [command, "--help"] if command else ["--help"]

    assert imported_by(*arguments) == "[] 0"


def test_grad_imports_what_the_graph_and_its_options_need(tmp_path):
    program = (
        "import sys; from gradtool.cli import run; run(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr)"
    )
    arguments = ["grad", SAMPLES / "cnn.onnx", "-o", tmp_path / "made.onnx"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    tops = [name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()]

    assert tops.count("gradtool") <= MOST_MODULES
    assert not {"scipy", "rich"} & set(tops)


@pytest.mark.parametrize("command", group.COMMANDS)
def test_every_command_has_a_page_of_help(run, command):
    outcome = run(command, "--help")

    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: gradtool {command}")
    assert not outcome.err


def test_help_lists_every_command(run):
    outcome = run("--help")

    assert all(f"  {name} " in outcome.out for name in group.COMMANDS)


def test_help_fits_eighty_columns(shell):
    for name in (None, *group.COMMANDS):
        page = shell(*filter(None, [name]), "--help", COLUMNS="80").stdout.decode()

        assert max(map(len, page.splitlines())) <= 80


@pytest.mark.sample(3)
@pytest.mark.parametrize("columns", ["", "80", "100", "200", "60"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_page_of_help_is_what_click_prints(shell, flag, columns):
    quick = shell(flag, COLUMNS=columns)
    slow = shell("--color", "auto", flag, COLUMNS=columns)

    assert (quick.returncode, quick.stdout, quick.stderr) == (0, slow.stdout, b"")


def test_the_page_of_help_imports_no_library():
    code = (
        "import atexit, sys; from gradtool import cli;"
        "atexit.register(lambda: print('click' in sys.modules, file=sys.stderr));"
        "cli.main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "False\n"


def test_no_command_prints_the_help_and_is_an_error(run):
    outcome = run()

    assert outcome.code == 2
    assert not outcome.out
    assert outcome.err.startswith("Usage: gradtool")


def test_version(run):
    assert run("--version").out.split() == ["gradtool,", "version", __version__]


def test_an_unknown_command_gets_a_suggestion(run):
    outcome = run("grda")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "gradtool: no such command 'grda'; did you mean 'grad'? (see gradtool --help)\n"
    )


def test_an_unknown_flag_names_the_page_of_help(run):
    outcome = run("grad", "--forse")

    assert outcome.code == 2
    assert outcome.err.startswith("gradtool: ")
    assert "--forse" in outcome.err
    assert "see gradtool grad --help" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("command", ["grad", "run", "report", "ops", "doctor"])
def test_an_unknown_format_lists_the_known_ones(run, command):
    outcome = run(command, "--format", "xml")

    assert outcome.code == 2
    assert "'table', 'json'" in outcome.err
    assert outcome.err.count("\n") == 1


def raising(error):
    def raise_it(*_arguments, **_options):
        raise error

    return raise_it


def test_an_interrupt_is_one_line_and_130(run, monkeypatch, tiny_model):
    monkeypatch.setattr(opening, "load", raising(KeyboardInterrupt()))

    outcome = run("grad", tiny_model)

    assert (outcome.code, outcome.out, outcome.err) == (130, "", "gradtool: interrupted\n")


@pytest.mark.parametrize("error", [RuntimeError("odd\nthing"), EOFError(), RecursionError("deep")])
def test_a_bug_is_one_line_and_70(run, monkeypatch, tiny_model, error):
    monkeypatch.setattr(opening, "load", raising(error))

    outcome = run("grad", tiny_model)

    assert outcome.code == 70
    assert outcome.err.startswith(f"gradtool: a bug in gradtool: {type(error).__name__}: ")
    assert "please report it" in outcome.err
    assert outcome.err.count("\n") == 1


def test_verbose_shows_the_traceback_of_a_bug(run, monkeypatch, tiny_model):
    monkeypatch.setattr(opening, "load", raising(RuntimeError("odd")))

    outcome = run("-v", "grad", tiny_model)

    assert outcome.code == 70
    assert outcome.err.startswith("Traceback")


def test_no_memory_is_one_line_and_4(run, monkeypatch, tiny_model):
    monkeypatch.setattr(opening, "load", raising(MemoryError()))

    outcome = run("grad", tiny_model)

    assert (outcome.code, outcome.err) == (4, "gradtool: out of memory\n")


def test_a_full_disk_is_one_line_and_2(run, monkeypatch, tiny_model):
    monkeypatch.setattr(opening, "load", raising(OSError(28, "No space left on device", "x.onnx")))

    outcome = run("grad", tiny_model)

    assert (outcome.code, outcome.err) == (2, "gradtool: x.onnx: No space left on device\n")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_a_full_standard_output_is_one_line_and_2():
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-m", "gradtool", "ops"], stdout=full, stderr=-1, check=False
        )

    assert done.returncode == 2
    assert done.stderr == b"gradtool: No space left on device\n"


def test_a_reader_that_leaves_is_no_error():
    program = f"{sys.executable} -m gradtool ops --format json | head -c 1 > /dev/null"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {program}"], stderr=-1, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.exhaustive
def test_a_reader_that_leaves_a_model_is_no_error(model, tmp_path):
    path = model(gates.net(width=256), "wide.onnx")  # a megabyte: more than a pipe holds
    program = f"{sys.executable} -m gradtool -q recompute {path} --batch 4 --strategy sqrt -o -"
    script = f"set -o pipefail; {program} | head -c 10 > /dev/null"
    done = subprocess.run(["bash", "-c", script], stderr=-1, check=False, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, b"")


def test_quiet_leaves_results_only(run, tiny_model):
    outcome = run("-q", "grad", tiny_model)

    assert outcome.code == 0
    assert "wrote" in outcome.out
    assert not outcome.err


def test_a_name_cannot_command_the_terminal(run):
    outcome = run("grad", "\x1b[31mred.onnx")

    assert "\x1b" not in outcome.err
    assert "\\x1b[31mred.onnx: no such file" in outcome.err
