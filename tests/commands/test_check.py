"""`gradtool check`: a repository's memory is recorded, guarded, explained and recorded anew."""

import json
import shutil

import gates
import pytest
from conftest import TINY, build, sampled, tiny_weights
from gates import CONFIG, git, write

PEAK = "peak"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "gradtool.toml").write_text(CONFIG)
    write(tmp_path / "net.onnx")
    return tmp_path


@pytest.fixture
def check(run, repository):
    """Runs `gradtool check` in the repository."""
    assert repository.is_dir()

    def command(*arguments):
        return run("check", "-j", "1", *arguments)

    return command


def document(outcome):
    return json.loads(outcome.out)


def only(check, *arguments):
    (found,) = document(check("--output", "json", *arguments))["cases"]
    return found


def test_a_model_grows_is_explained_recorded_and_passes(check, repository):
    first = check()
    assert (first.code, "there is no baseline" in first.out) == (1, True)
    assert check("--update").code == 0
    assert check().code == 0

    write(repository / "net.onnx", width=32)
    grown = check()

    assert grown.code == 1
    assert " GREW" in grown.out
    assert "net: peak " in grown.out
    assert "fail-on peak:0%" in grown.out
    assert "16x16 → 32x32" in grown.out
    assert "1 case checked, 1 failed" in grown.out
    assert check("--update").code == 0
    assert check().code == 0


def test_an_activation_that_cannot_be_mirrored_is_named_with_the_reason(check, repository):
    plan = CONFIG.replace("= 4", "= 256").replace('"mirror"', '{ policy = "cheap" }')
    (repository / "gradtool.toml").write_text(plan)
    write(repository / "net.onnx", layers=6)
    assert check("--update").code == 0
    write(repository / "net.onnx", layers=6, activation="LpNormalization")

    found = only(check)

    assert found["verdict"] == "grew"
    why = {row["name"]: row["why"] for row in found["grown"]}
    other = "Tanh → LpNormalization: the policy runs this operator once"
    assert why["m1"] == f"no longer in the place of t1, {other}"
    assert why["LpNormalization"] == "new: 6 nodes"


def test_the_peak_is_the_one_that_report_prints(check, run, repository):
    (repository / "gradtool.toml").write_text(CONFIG.replace('plan = "mirror"', ""))

    report = run("report", "net.onnx", "--batch", "4", "--format", "json")

    assert only(check)["metrics"]["peak"] == document(report)["models"][0]["peak_bytes"]


def test_only_update_writes(check, repository):
    before = {p.name for p in repository.iterdir()}
    for flags in ((), ("--allow-new",), ("--list",), ("--run",), ("--fail-on", "peak:5%")):
        check("--no-cache", *flags)

    assert {p.name for p in repository.iterdir()} == before
    check("--update", "--no-cache")
    assert {p.name for p in repository.iterdir()} == {*before, "gradtool-baseline"}


@pytest.mark.exhaustive
def test_baselines_are_the_same_bytes_in_other_processes(shell, repository):
    found = []
    for seed in ("0", "1"):
        shutil.rmtree(repository / "gradtool-baseline", ignore_errors=True)
        done = shell("check", "--update", "--no-cache", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        found.append((repository / "gradtool-baseline" / "net.json").read_bytes())

    assert found[0] == found[1]
    assert str(repository).encode() not in found[0]


def test_updating_twice_leaves_the_same_bytes(check, repository):
    baseline = repository / "gradtool-baseline" / "net.json"
    check("--update")
    once = baseline.read_bytes()

    for flags in ((), ("--no-cache",)):
        outcome = check("--update", *flags)
        assert (outcome.code, baseline.read_bytes()) == (0, once)
        assert "recorded" not in outcome.err


def test_an_improvement_passes_and_is_not_recorded(check, repository):
    check("--update")
    before = (repository / "gradtool-baseline" / "net.json").read_bytes()
    write(repository / "net.onnx", width=8)

    assert (only(check)["verdict"], check().code) == ("improved", 0)
    assert (repository / "gradtool-baseline" / "net.json").read_bytes() == before
    stale = only(check, "--fail-on-stale")
    assert (stale["verdict"], stale["failed"]) == ("stale", True)
    assert check("--fail-on-stale").code == 1


def test_only_improved_records_nothing_that_grew(check, repository):
    config = CONFIG + '[[case]]\nmodel = "other.onnx"\ndims = { batch = 4 }\n'
    (repository / "gradtool.toml").write_text(config)
    write(repository / "other.onnx")
    check("--update")
    before = (repository / "gradtool-baseline" / "other.json").read_bytes()
    write(repository / "net.onnx", width=8)
    write(repository / "other.onnx", width=32)

    outcome = check("--update", "--only-improved")

    assert outcome.code == 1
    assert (repository / "gradtool-baseline" / "other.json").read_bytes() == before
    assert [c["verdict"] for c in document(check("--output", "json"))["cases"]] == ["ok", "grew"]


def test_a_limit_needs_no_baseline(check, repository):
    (repository / "gradtool.toml").write_text(CONFIG + 'limit = { peak = "1GiB" }\n')
    assert (check().code, only(check)["verdict"]) == (0, "ok")

    (repository / "gradtool.toml").write_text(CONFIG + 'limit = { peak = "1KiB" }\n')
    outcome = check("--update")
    assert outcome.code == 1
    assert "OVER LIMIT" in outcome.out
    assert "limit 1.00 KiB" in outcome.out


def test_new_cases_may_be_let_pass(check):
    assert check("--allow-new").code == 0
    assert check("--exit-zero").code == 0


def test_a_rule_of_the_command_line_replaces_those_of_the_configuration(check, repository):
    check("--update")
    write(repository / "net.onnx", width=17)

    assert check().code == 1
    assert check("--fail-on", "peak:1%+1MiB").code == 0
    assert check("--fail-on", "nodes:0%").code == 0


def test_cases_are_chosen_by_name_group_and_glob(check, repository):
    (repository / "gradtool.toml").write_text(CONFIG.replace("= 4", "= [2, 4]"))

    assert (
        "recorded in gradtool-baseline: net-batch-2.json\n"
        in check("--update", "net[[]batch=2]").err
    )
    names = [c["case"] for c in document(check("--output", "json"))["cases"]]
    assert names == ["net[batch=2]", "net[batch=4]"]
    assert only(check, "net[batch=4]")["verdict"] == "new"
    assert len(document(check("--output", "json", "net"))["cases"]) == 2
    outcome = check("nett")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "gradtool: no case 'nett'; did you mean 'net'?\n"


def test_a_list_plans_nothing(check, repository):
    (repository / "net.onnx").write_bytes(b"")

    outcome = check("--list")

    assert outcome.code == 0
    assert outcome.out.splitlines()[2].split() == ["net", "net.onnx", "mirror", "none"]
    (found,) = document(check("--list", "--output", "json"))["cases"]
    assert (found["case"], found["recorded"], found["dims"]) == ("net", False, {"batch": 4})


def test_a_run_is_measured_within_the_plan(check):
    found = only(check, "--run", "--allow-new")

    assert found["metrics"]["measured-arena"] <= found["metrics"]["peak"]
    assert not found["failed"]
    assert "measured-arena" not in only(check)["metrics"]


def test_a_case_that_cannot_be_planned_does_not_hide_the_others(check, repository):
    config = CONFIG + '[[case]]\nmodel = "gone.onnx"\n[[case]]\nname = "open"\nmodel = "net.onnx"\n'
    (repository / "gradtool.toml").write_text(config)

    outcome = check("--update")
    verdicts = {c["case"]: c for c in document(check("--output", "json"))["cases"]}

    assert outcome.code == 2
    assert verdicts["net"]["verdict"] == "ok"
    assert verdicts["gone"]["reasons"][0].endswith("gone.onnx: no such file")
    (said,) = verdicts["open"]["reasons"]
    assert "dims = { batch = 1 }" in said
    assert check("--exit-zero").code == 2


def test_an_operator_without_a_gradient_is_exit_3(check, model):
    header = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'
    model(build(TINY.replace("Exp (s)", "com.acme.Gate (s)"), header, **tiny_weights()), "net.onnx")

    outcome = check()

    assert outcome.code == 3
    assert "no gradient for com.acme::Gate" in outcome.out


def test_a_damaged_baseline_is_an_error_that_update_mends(check, repository):
    check("--update")
    path = repository / "gradtool-baseline" / "net.json"
    path.write_text("<<<<<<< ours\n" + path.read_text())

    outcome = check()
    assert outcome.code == 2
    assert "net.json: is no JSON" in outcome.out
    assert check("--update").code == 0
    assert check().code == 0


def test_a_baseline_without_a_case_is_said(check, repository):
    check("--update")
    (repository / "gradtool-baseline" / "old.json").write_text("{}")

    assert "old.json: is of no case; delete it" in check().err


def test_a_plan_that_time_cut_short_is_no_baseline(check, repository):
    plan = 'plan = { budget = "min", time-limit = "0.05s" }'
    (repository / "gradtool.toml").write_text(CONFIG.replace('plan = "mirror"', plan))

    outcome = check("--update")

    assert outcome.code == 1
    assert "cut short by time" in outcome.out
    assert "it may be another one elsewhere" in check().err
    assert not (repository / "gradtool-baseline").exists()


def test_a_plan_that_time_cut_short_stays_so_from_file_to_file(check, run, repository):
    searched = ("--budget", "min", "--batch", "4", "-o", "a.json")
    assert run("recompute", "net.onnx", *searched).code == 0
    document = json.loads((repository / "a.json").read_text())
    document["proof"]["cut_short"] = True
    (repository / "a.json").write_text(json.dumps(document))
    followed = run("recompute", "net.onnx", "--batch", "4", "--plan", "a.json", "-o", "b.json")
    assert "cut short" in followed.out
    (repository / "gradtool.toml").write_text(CONFIG.replace('"mirror"', '"b.json"'))

    outcome = check("--update")

    assert outcome.code == 1
    assert "cut short by time" in outcome.out


def test_a_plan_in_a_file_is_followed_until_the_model_changes(check, run, repository):
    write(repository / "net.onnx", layers=6, batch="256")
    flags = ("recompute", "net.onnx", "--strategy", "sqrt", "-o", "net.plan.json")
    assert run(*flags).code == 0
    text = CONFIG.replace('"mirror"', '"net.plan.json"').replace("dims = { batch = 4 }", "")
    (repository / "gradtool.toml").write_text(text)
    assert check("--update").code == 0

    write(repository / "net.onnx", layers=7, batch="256")
    outcome = check()
    assert outcome.code == 2
    assert "the plan is of another model" in outcome.out


def test_another_plan_in_the_configuration_is_said(check, repository):
    check("--update")
    (repository / "gradtool.toml").write_text(CONFIG.replace("mirror", "keep"))

    assert "the baseline is of plan mirror, the case of keep" in check().err + check().out


def test_the_cache_knows_a_model_by_its_content(check, repository, monkeypatch):
    from gradtool.check import jobs

    first = only(check, "--allow-new")
    with monkeypatch.context() as patched:
        patched.setattr(jobs, "outcome_of", None)
        assert only(check, "--allow-new") == first
    write(repository / "net.onnx", width=32)
    assert only(check, "--allow-new")["metrics"] != first["metrics"]


@pytest.mark.exhaustive
def test_processes_find_what_one_finds(run, repository):
    (repository / "gradtool.toml").write_text(CONFIG.replace("= 4", "= [2, 4]"))

    side_by_side = run("check", "-j", "2", "--no-cache", "--output", "json")
    alone = run("check", "-j", "1", "--no-cache", "--output", "json")

    assert side_by_side.out == alone.out


def commit(repository, message="a"):
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", message)


def test_another_revision_stands_for_the_baselines(check, repository):
    git(repository, "init", "-q")
    commit(repository)
    assert check("--base", "HEAD").code == 0
    write(repository / "net.onnx", width=32)

    found = only(check, "--base", "HEAD")

    assert (found["verdict"], check("--base", "HEAD").code) == ("grew", 1)
    commit(repository)
    assert check("--base", "HEAD~1").code == 1
    assert check("--base", "HEAD").code == 0


def test_external_data_of_another_revision_is_had(check, repository):
    import onnx

    model = gates.net(width=64)
    onnx.save(model, repository / "net.onnx", save_as_external_data=True, location="net.data")
    git(repository, "init", "-q")
    commit(repository)
    (repository / "net.data").unlink()
    write(repository / "net.onnx", width=64)

    assert only(check, "--base", "HEAD", "--run")["verdict"] == "ok"


def test_a_model_that_the_revision_lacks_is_new(check, repository):
    git(repository, "init", "-q")
    (repository / "net.onnx").rename(repository / "away")
    commit(repository)
    (repository / "away").rename(repository / "net.onnx")

    outcome = check("--base", "HEAD")
    assert outcome.code == 1
    assert "HEAD does not have the model: give --allow-new" in outcome.out
    assert check("--base", "HEAD", "--allow-new").code == 0


def test_a_renamed_model_is_compared_with_what_it_was(check, repository):
    git(repository, "init", "-q")
    commit(repository)
    config = CONFIG.replace('model = "net.onnx"', 'name = "net"\nmodel = "wide.onnx"')
    (repository / "gradtool.toml").write_text(config)
    (repository / "net.onnx").unlink()
    write(repository / "wide.onnx", width=32)

    assert only(check, "--base", "HEAD")["verdict"] == "grew"


def test_two_branches_record_two_cases_and_merge(check, repository):
    config = CONFIG + '[[case]]\nmodel = "other.onnx"\ndims = { batch = 4 }\n'
    (repository / "gradtool.toml").write_text(config)
    write(repository / "other.onnx")
    git(repository, "init", "-q")
    check("--update")
    commit(repository)
    main = git(repository, "branch", "--show-current").strip()
    for name in ("net", "other"):
        git(repository, "checkout", "-q", "-b", name, main)
        write(repository / f"{name}.onnx", width=32)
        assert check("--update", name).code == 0
        commit(repository, name)

    git(repository, "merge", "-q", "-m", "both", "net")

    assert check().code == 0


@pytest.mark.parametrize("form", ["json", "markdown", "junit", "sarif"])
def test_a_format_is_an_output_to_stdout(check, form):
    printed, named = check("--format", form), check("--output", form)

    assert printed.out == named.out
    assert (printed.code, printed.out.startswith(" case")) == (named.code, False)
    assert check("--list", "--format", "json").out == check("--list", "--output", "json").out


REFUSED = {
    "two formats": (("--format", "json", "--output", "sarif"), "both go to stdout"),
    "a format as an output too": (("--format", "json", "--output", "json"), "is given twice"),
    "no repository": (("--base", "HEAD"), "lies in no git repository"),
    "a flag as a revision": (("--base=--help",), "is no name of a revision"),
    "a base and an update": (("--base", "HEAD", "--update"), "cannot be combined with"),
    "improved, but no update": (("--only-improved",), "--only-improved needs --update"),
    "an unknown metric": (("--fail-on", "peek:1%"), "did you mean 'peak'?"),
    "a rule without an amount": (("--fail-on", "peak"), "write METRIC:AMOUNT"),
    "an unknown format": (("--output", "xml"), "there is no format 'xml'"),
    "a format twice": (("--output", "json", "--output", "json:a"), "is given twice"),
    "two documents": (("--output", "json", "--output", "sarif"), "both go to stdout"),
    "one file": (("--output", "json:a", "--output", "sarif:a"), "json and --output sarif name the"),
    "a model's file": (("--output", "json:a.onnx"), "json a.onnx: that is the name of a model"),
    "no folder": (("--output", "json:none/a"), "there is no folder"),
    "a list in a file": (("--list", "--output", "json:a"), "--list is printed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(check, name):
    flags, message = REFUSED[name]

    outcome = check(*flags)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err.splitlines()[-1]
    assert outcome.err.splitlines()[-1].startswith("gradtool: ")


def test_an_unknown_revision_is_named(check, repository):
    git(repository, "init", "-q")
    commit(repository)

    outcome = check("--base", "v9")

    assert outcome.code == 2
    assert "--base v9: the repository has no such revision" in outcome.err


def test_without_a_configuration_there_is_nothing_to_check(run):
    outcome = run("check")

    assert outcome.code == 2
    assert outcome.err.startswith("gradtool: no configuration: gradtool init writes one, with a ")


def test_the_configuration_is_the_one_given_or_none(run, repository):
    (repository / "other.toml").write_text(
        CONFIG.replace('model = "net', 'name = "b"\nmodel = "net')
    )

    named = run("--config", "other.toml", "check", "--list")

    assert named.out.splitlines()[2].startswith(" b ")
    assert run("--no-config", "check").code == 2
    assert run("--config", "none.toml", "check").code == 2
    assert run("--config", "other.toml", "--no-config", "check").code == 2


def test_several_outputs_at_once(check, repository):
    files = {form: repository / f"out.{form}" for form in ("json", "markdown", "junit", "sarif")}

    outcome = check(*(f for form, path in files.items() for f in ("--output", f"{form}:{path}")),
                    "--output", "table:out.txt", "--output", "github")  # fmt: skip

    assert outcome.code == 1
    assert outcome.out.startswith("::error file=gradtool.toml,line=4,title=gradtool check%3A net")
    assert json.loads(files["json"].read_text())["failed"] == 1
    assert json.loads(files["sarif"].read_text())["version"] == "2.1.0"
    assert files["junit"].read_text().startswith("<?xml")
    assert "| net | mirror |" in files["markdown"].read_text()
    assert " verdict\n" in (repository / "out.txt").read_text()


def test_the_summary_of_a_job_has_the_markdown_too(check, repository, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository / "summary.md"))
    (repository / "summary.md").write_text("before\n")

    check()

    assert (repository / "summary.md").read_text().startswith("before\n### gradtool check: 1 case")


def test_names_of_a_model_are_inert_from_end_to_end(check, repository):
    model = gates.net(width=32)
    names = dict(
        zip(("m0", "t0", "s0", "m1", "t1"), (*gates.HOSTILE[:4], "\u202egnp" * 500), strict=True)
    )
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    check("--update")
    (repository / "net.onnx").write_bytes(model.SerializeToString())

    for form in ("table", "json", "markdown", "github", "junit", "sarif"):
        outcome = check("--output", form)

        assert outcome.code == 1
        assert all(c.isprintable() or c == "\n" for c in outcome.out + outcome.err)
        assert "<script" not in outcome.out or form in ("table", "json", "github", "sarif")


@pytest.mark.exhaustive
@pytest.mark.parametrize("encoding", sampled(["ascii", "utf-8"]))
def test_the_table_in_a_pipe_is_in_characters_that_the_stream_has(shell, repository, encoding):
    (repository / "gradtool.toml").write_text(CONFIG.replace("= 4", "= 256"))
    shell("check", "--update")
    write(repository / "net.onnx", width=20)

    done = shell("check", PYTHONIOENCODING=encoding, PYTHONUTF8="0", FORCE_COLOR="1", NO_COLOR="1")

    lines = done.stdout.decode(encoding).splitlines()
    assert done.returncode == 1
    assert set(lines[1].strip()) == {"─" if encoding == "utf-8" else "-"}
    assert lines[2].split()[:2] == ["net", "mirror"]
    assert lines[2].endswith("GREW")
    assert any("256x16 → 256x20" in line or "256x16 -> 256x20" in line for line in lines)
    assert b"\x1b" not in done.stdout


def test_a_case_is_planned_for_its_kernels_and_its_baseline_says_so(check, repository):
    config = (repository / "gradtool.toml").read_text()
    (repository / "gradtool.toml").write_text(config + 'kernels = "numpy"\n')
    assert check("--update").code == 0
    (path,) = (repository / "gradtool-baseline").glob("*.json")
    numpys = json.loads(path.read_text())
    (repository / "gradtool.toml").write_text(config)
    assert only(check)["kernels"] == "numpy"  # as recorded
    (repository / "gradtool.toml").write_text(config + 'kernels = "native"\n')
    other = check()

    assert (numpys["schema_version"], numpys["kernels"]) == (3, "numpy")
    assert "the baseline is of kernels numpy, the case of native" in other.out + other.err
    assert only(check)["kernels"] == "native"
    assert check("--update").code == 0
    assert json.loads(path.read_text())["kernels"] == "native"
    assert json.loads(path.read_text())["metrics"]["peak"] != numpys["metrics"]["peak"]


def test_an_earlier_baseline_counts_numpys_kernels_and_is_told_of_in_one_line(check, repository):
    config = (repository / "gradtool.toml").read_text()
    (repository / "gradtool.toml").write_text(config + 'kernels = "numpy"\n')
    assert check("--update").code == 0
    (repository / "gradtool.toml").write_text(config)
    (path,) = (repository / "gradtool-baseline").glob("*.json")
    former = json.loads(path.read_text()) | {"schema_version": 1}
    del former["kernels"]
    path.write_text(json.dumps(former))
    found, again = check(), check("--update")

    line = "1 baseline of numpy's kernels, the former default: "
    assert found.code == again.code == 0
    assert found.err.count(line) == 1
    assert line not in again.err
    assert json.loads(path.read_text())["schema_version"] == 3
    assert line not in check().err
