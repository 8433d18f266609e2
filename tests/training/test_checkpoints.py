import json

import numpy as np
import pytest

from gradtool.errors import UsageError
from gradtool.training.checkpoints import Folder
from gradtool.training.journal import Mark
from gradtool.training.progress import Best, Progress
from gradtool.training.sampler import Place

OF = {"model": {"graph": "a"}, "recipe": {"lr": 0.1}}
ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "step": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float64),
}
PROGRESS = Progress(7, Place(1, 2), Best(5, 0.25), 1, 2, 2.0**-3, 9)


def test_what_was_written_is_read(tmp_path):
    Folder(tmp_path, OF).save(PROGRESS, ARRAYS, Mark(123, "ab"), keep=2)

    found = Folder(tmp_path, OF).load(7)

    assert found.progress == PROGRESS
    assert found.journal == Mark(123, "ab")
    assert set(found.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


def test_the_same_checkpoint_has_the_same_bytes(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Folder(tmp_path / name, OF).save(PROGRESS, ARRAYS, Mark(1), keep=1)

    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_newest_stay_and_the_best(tmp_path, keep):
    folder = Folder(tmp_path, OF)
    for step in range(1, 9):
        folder.save(Progress(step, best=Best(min(step, 3), 0.0)), ARRAYS, Mark(), keep)

    assert folder.steps() == sorted({3, *range(9 - keep, 9)})
    tensors = sorted(path.stem for path in tmp_path.glob("*.safetensors"))
    assert tensors == [f"step-{step:08}" for step in folder.steps()]


def loaded(folder):
    """What is said, or the checkpoint."""
    try:
        return "", folder.load(7)
    except UsageError as error:
        return str(error), None


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_damage_is_found_wherever_it_is(tmp_path, suffix):
    """Each byte changed, and each length shorter; of the JSON, what says the same may."""
    folder = Folder(tmp_path, OF)
    folder.save(PROGRESS, ARRAYS, Mark(5), keep=1)
    path = tmp_path / f"step-00000007{suffix}"
    good, before = path.read_bytes(), folder.load(7)
    missed = []
    for place in range(0, len(good), 3):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]):
            path.write_bytes(bad)
            said, found = loaded(folder)
            if found is None:
                assert "\n" not in said
                assert str(tmp_path) in said
            else:
                missed.append(found.progress != before.progress)
    assert not any(missed)


WRONG = {
    "step": [None, 1.5, "7", True],
    "place": [None, {}, {"epoch": 1}, [1, 2]],
    "best": [{}, 5, {"step": 1}],
    "scale": [None, "x"],
    "journal": [None, "5", -1],
    "journal_sha256": [5, [], True],
    "sha256": [None, "", 5],
    "of": [None, [], "x"],
    "schema_version": [0, 2, None],
}


@pytest.mark.parametrize("key", WRONG)
def test_a_document_that_says_something_else_is_one_line(tmp_path, key):
    folder = Folder(tmp_path, OF)
    folder.save(PROGRESS, ARRAYS, Mark(5), keep=1)
    path = tmp_path / "step-00000007.json"
    document = json.loads(path.read_text())
    for wrong in WRONG[key]:
        path.write_text(json.dumps(document | {key: wrong}))
        with pytest.raises(UsageError) as error:
            folder.load(7)
        assert "\n" not in str(error.value)


def test_tensors_without_their_document_are_removed(tmp_path):
    (tmp_path / "step-00000003.safetensors").write_bytes(b"half")
    folder = Folder(tmp_path, OF)

    assert folder.steps() == []
    folder.save(PROGRESS, ARRAYS, Mark(5), keep=1)
    assert not (tmp_path / "step-00000003.safetensors").exists()
