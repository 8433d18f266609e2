"""Files of another revision, laid out as they were."""

from __future__ import annotations

import pytest
from gates import case, git, net, write

from gradtool.check import Choice
from gradtool.check.cache import locations
from gradtool.check.revisions import Revision
from gradtool.errors import UsageError


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    (root / "models").mkdir(parents=True)
    git(root, "init", "-q")
    return root


def commit(root):
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a")


def there(root, tmp_path, checked, ref="HEAD"):
    return Revision(ref, root, tmp_path / "into").case(checked)


def test_the_model_and_the_files_of_its_plan_are_those_of_the_revision(repository, tmp_path):
    write(repository / "models" / "net.onnx")
    (repository / "p.json").write_text("then")
    commit(repository)
    then = (repository / "models" / "net.onnx").read_bytes()
    write(repository / "models" / "net.onnx", width=32)
    (repository / "p.json").write_text("now")

    plan = Choice("file", {"plan": "p.json"})
    found = there(repository, tmp_path, case(folder=repository, model="models/net.onnx", plan=plan))

    assert found.path.read_bytes() == then
    assert (found.folder / "p.json").read_text() == "then"
    assert (repository / "p.json").read_text() == "now"


def test_a_configuration_below_the_root_is_followed(repository, tmp_path):
    write(repository / "models" / "net.onnx")
    commit(repository)

    found = there(repository, tmp_path, case(folder=repository / "models"))

    assert found.path.is_file()


def test_external_data_comes_with_the_model(repository, tmp_path):
    import onnx

    path = repository / "models" / "net.onnx"
    onnx.save(net(width=64), path, save_as_external_data=True, location="net.data")
    commit(repository)
    data = (path.parent / "net.data").read_bytes()
    (path.parent / "net.data").unlink()

    found = there(repository, tmp_path, case(folder=repository, model="models/net.onnx"))

    assert locations(found.path) == ["net.data"]
    assert (found.path.parent / "net.data").read_bytes() == data


def test_a_model_that_was_not_there_is_none(repository, tmp_path):
    (repository / "a").write_text("")
    commit(repository)
    write(repository / "models" / "net.onnx")

    assert there(repository, tmp_path, case(folder=repository, model="models/net.onnx")) is None


CASE = '[[case]]\nname = "net"\nmodel = "models/{}.onnx"\n'


@pytest.fixture
def renamed(repository):
    """A repository whose configuration has a model under another path than the last commit."""
    write(repository / "models" / "old.onnx")
    (repository / "gradtool.toml").write_text(CASE.format("old"))
    commit(repository)
    (repository / "models" / "old.onnx").rename(repository / "models" / "new.onnx")
    (repository / "gradtool.toml").write_text(CASE.format("new"))
    return repository


def before(root, tmp_path, name="net"):
    today = case(name, folder=root, model="models/new.onnx", dims={"batch": 4})
    return Revision("HEAD", root, tmp_path / "into").case(today, root / "gradtool.toml")


def test_a_model_that_had_another_path_is_found_by_the_name_of_its_case(renamed, tmp_path):
    found = before(renamed, tmp_path)

    assert found.path.read_bytes() == (renamed / "models" / "new.onnx").read_bytes()
    assert found.model == "models/old.onnx"
    assert (found.name, found.dims) == ("net", {"batch": 4})


def test_a_case_that_was_not_there_has_no_model(renamed, tmp_path):
    assert before(renamed, tmp_path, "other") is None


def test_a_configuration_that_was_none_is_said_without_where_it_was_laid(renamed, tmp_path):
    (renamed / "gradtool.toml").write_text("[[case]]\nname = 1\n")
    commit(renamed)
    git(renamed, "rm", "-q", "--cached", "models/new.onnx")
    git(renamed, "commit", "-qm", "b")

    with pytest.raises(UsageError, match=r"^gradtool\.toml: case 1"):
        before(renamed, tmp_path)


def test_a_model_that_the_earlier_case_lacked_too_is_none(repository, tmp_path):
    (repository / "gradtool.toml").write_text(CASE.format("new"))
    commit(repository)

    assert before(repository, tmp_path) is None


def test_a_pointer_to_large_file_storage_is_named(repository, tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (repository / "models" / "net.onnx").write_text(pointer)
    commit(repository)

    with pytest.raises(UsageError, match=r"models/net\.onnx: is a Git LFS pointer: fetch it"):
        there(repository, tmp_path, case(folder=repository, model="models/net.onnx"))


def test_a_model_outside_of_the_repository_has_no_past(repository, tmp_path):
    (repository / "a").write_text("")
    commit(repository)

    with pytest.raises(UsageError, match="lies outside the repository"):
        there(repository, tmp_path, case(folder=repository, model="../net.onnx"))


@pytest.mark.parametrize("ref", ["-x", "", "a\nb", "nope"])
def test_what_is_no_revision_is_refused(repository, tmp_path, ref):
    with pytest.raises(UsageError, match="--base"):
        Revision(ref, repository, tmp_path / "into")


def test_without_git_that_is_said(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UsageError, match="--base needs git, and there is none here"):
        Revision("HEAD", repository, tmp_path / "into")


def test_a_file_that_a_filter_cannot_give_is_named_with_what_git_says(repository, tmp_path):
    write(repository / "models" / "net.onnx")
    (repository / ".gitattributes").write_text("*.onnx filter=large\n")
    commit(repository)
    git(repository, "config", "filter.large.smudge", "no-such-program")
    git(repository, "config", "filter.large.required", "true")

    with pytest.raises(UsageError) as raised:
        there(repository, tmp_path, case(folder=repository, model="models/net.onnx"))

    said = str(raised.value)
    assert said.startswith("models/net.onnx: cannot be had from git: ")
    assert "no-such-program" in said
    assert "\n" not in said


def test_a_shallow_clone_is_told_to_fetch(repository, tmp_path):
    for text in "ab":
        (repository / "a").write_text(text)
        commit(repository)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "clone")
    absent = "--base HEAD~1: the repository has no such revision"

    with pytest.raises(UsageError) as shallow:
        Revision("HEAD~1", tmp_path / "clone", tmp_path / "into")
    with pytest.raises(UsageError) as whole:
        Revision("HEAD~2", repository, tmp_path / "into")

    assert str(shallow.value) == f"{absent}: this clone is shallow, so fetch it first"
    assert str(whole.value) == absent.replace("~1", "~2")


def test_where_there_is_no_work_tree_git_says_why(repository, tmp_path):
    (repository / "a").write_text("")
    commit(repository)
    git(tmp_path, "clone", "-q", "--bare", str(repository), "bare")
    (tmp_path / "plain").mkdir()

    for folder, why in (("bare", "must be run in a work tree"), ("plain", "not a git repository")):
        with pytest.raises(UsageError, match=f"--base HEAD: .* that git will use: .*{why}"):
            Revision("HEAD", tmp_path / folder, tmp_path / "into")


def test_a_repository_without_a_commit_has_no_revision(repository, tmp_path):
    with pytest.raises(UsageError, match=r"^--base HEAD: the repository has no such revision$"):
        Revision("HEAD", repository, tmp_path / "into")
