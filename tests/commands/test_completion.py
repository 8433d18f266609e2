import shutil
import subprocess

import pytest


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_the_script_is_the_one_of_the_environment_variable(run, shell, shell_name):
    printed = run("completion", shell_name)
    sourced = shell(_GRADTOOL_COMPLETE=f"{shell_name}_source")

    assert printed.code == 0
    assert "_GRADTOOL_COMPLETE" in printed.out
    assert sourced.stdout.decode().strip() == printed.out.strip()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_accepts_the_script(run):
    script = run("completion", "bash").out

    done = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("gradtool rep", ["plain,report"]),
        ("gradtool grad --accu", ["plain,--accumulate"]),
        ("gradtool run --engine o", ["plain,ort"]),
        ("gradtool grad mod", ["file,mod"]),
    ],
)
def test_commands_flags_choices_and_files_are_completed(shell, words, completed):
    position = str(len(words.split()) - 1)

    done = shell(_GRADTOOL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)

    assert done.stdout.decode().split() == completed


def test_an_unknown_shell_is_refused(run):
    outcome = run("completion", "tcsh")

    assert outcome.code == 2
    assert "'bash', 'zsh', 'fish'" in outcome.err
