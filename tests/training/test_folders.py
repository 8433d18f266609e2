"""Folders of images and of recordings by class: decoded as libraries do, drawn by the seed."""

import json

import numpy as np
import onnx
import pytest
from conftest import build
from data_sources import (
    BEHIND,
    SOUNDS,
    image_model,
    normal,
    sound_model,
    write_images,
    write_sounds,
    write_wav,
)
from onnx import helper

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher

OPTIONS = {"batch": 4, "steps": 8, "lr": 0.1, "optimizer": "sgd", "loss": "ce"}
LABELS = np.repeat(np.arange(2), 12)


FIT = ("names", "watcher", "evaluate", "run", "resume")


def trained(model, data, **given):
    how = {name: given.pop(name) for name in FIT if name in given}
    with gt.Trainer(model, **OPTIONS | given) as trainer:
        return trainer.fit(data, **how)


@pytest.fixture
def files(model):
    """The path of a model."""
    return lambda proto: model(proto, "net.onnx")


class Said(Watcher):
    def __init__(self, stop=None):
        self.lines, self._stop, self._step = [], stop, 0

    def said(self, line):
        self.lines.append(line)

    def stepped(self, step, *_):
        self._step = step

    def stops(self):
        return self._step == self._stop


def in_front(pixels):
    return pixels.transpose(0, 3, 1, 2)


@pytest.mark.parametrize("text", [None, BEHIND])
@pytest.mark.parametrize("suffix", ["png", "bmp"])
def test_images_are_the_arrays_that_they_hold(files, tmp_path, text, suffix):
    pixels = write_images(tmp_path / "images", suffix=suffix)
    colors = pixels.astype(np.float32) / 255
    given = {"x": colors if text else in_front(colors), "labels": LABELS}
    net = files(image_model(text) if text else image_model())

    said = Said()
    assert trained(net, tmp_path / "images", watcher=said).losses == trained(net, given).losses
    assert any("colors are taken from 0 to 1" in line for line in said.lines)


@pytest.mark.parametrize("bgr", [False, True])
def test_mean_and_std_are_those_of_options_or_of_the_file(files, tmp_path, bgr):
    pixels = write_images(tmp_path / "images")
    mean, std = np.float32([0.4, 0.5, 0.6]), np.float32([0.2, 0.3, 0.25])
    given = {"x": in_front((pixels.astype(np.float32) / 255 - mean) / std), "labels": LABELS}
    options = {"image_mean": "0.4,0.5,0.6", "image_std": "0.2,0.3,0.25"}
    model = image_model()
    expected = trained(files(model), given).losses
    assert trained(files(model), tmp_path / "images", **options).losses == expected

    key = {"mean": mean.tolist(), "std": std.tolist(), "bgr": False}
    helper.set_model_props(model, {"gradtool.image": json.dumps(key)})
    assert trained(files(model), tmp_path / "images").losses == expected

    props = {"Image.NominalPixelRange": "NominalRange_0_255"}
    props |= {"Image.BitmapPixelFormat": "Bgr8"} if bgr else {}
    helper.set_model_props(model, props)
    turned = pixels[..., ::-1] if bgr else pixels
    given = {"x": in_front(turned.astype(np.float32)), "labels": LABELS}
    found = trained(files(model), tmp_path / "images", lr=1e-4)
    np.testing.assert_allclose(found.losses, trained(files(model), given, lr=1e-4).losses, 1e-4)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, (12, 10)),
        ({"image_size": "8x6"}, (12, 10)),
        ({"image_crop": "8x6"}, (12, 10)),
        ({"image_size": "9"}, (12, 10)),
        ({"image_size": "10x10", "image_crop": "8x6"}, (40, 3)),
    ],
)
def test_sizes_are_those_of_pillow(files, tmp_path, options, size):
    from PIL import Image

    pixels = write_images(tmp_path / "images", size=size)
    steps = {
        "8x6": lambda image: image.resize((6, 8), Image.Resampling.BILINEAR),
        "9": lambda image: image.resize((9, 10), Image.Resampling.BILINEAR).crop((1, 1, 7, 9)),
        "10x10": lambda image: image.resize((10, 10), Image.Resampling.BILINEAR).crop((2, 1, 8, 9)),
        None: lambda image: image.crop((2, 2, 8, 10)),
    }
    how = options.get("image_size", None if options else "8x6")
    made = np.stack([np.asarray(steps[how](Image.fromarray(each))) for each in pixels])
    given = {"x": in_front(made.astype(np.float32) / 255), "labels": LABELS}
    net = files(image_model())

    found = trained(net, tmp_path / "images", **options).losses
    assert found == trained(net, given).losses


@pytest.mark.parametrize("workers", [1, 3])
def test_draws_are_of_the_seed_the_epoch_and_the_example(files, tmp_path, workers):
    write_images(tmp_path / "images")
    net = files(image_model())
    options = {"flip": True, "random_crop": 2, "workers": workers, "checkpoint_every": 1}
    whole = trained(net, tmp_path / "images", run=tmp_path / "whole", **options)
    trained(net, tmp_path / "images", run=tmp_path / "run", watcher=Said(5), **options)
    trained(net, tmp_path / "images", run=tmp_path / "run", resume=True, **options)

    assert whole.losses == trained(net, tmp_path / "images", **options | {"workers": 2}).losses
    assert whole.losses != trained(net, tmp_path / "images", **options | {"flip": False}).losses
    both = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "run")]
    assert both[0] == both[1]
    with pytest.raises(UsageError, match="flip"):
        trained(net, tmp_path / "images", run=tmp_path / "run", resume=True, random_crop=2)


def test_evaluations_draw_nothing(files, tmp_path):
    pixels = write_images(tmp_path / "images")
    net = files(image_model())
    given = {"x": in_front(pixels.astype(np.float32) / 255), "labels": LABELS}
    options = {"lr": 0.0, "flip": True, "random_crop": 2}
    drawn = trained(net, tmp_path / "images", evaluate=tmp_path / "images", **options)

    assert drawn.evaluations == trained(net, given, evaluate=given, lr=0.0).evaluations


def test_names_of_classes_and_the_scale_are_in_the_trained_file(run, files, tmp_path):
    write_images(tmp_path / "images")
    files(image_model())
    assert (
        run("train", "net.onnx", "--loss", "ce", "--data", "images", "--image-mean", "0.5").code
        == 0
    )
    kept = {p.key: p.value for p in onnx.load(tmp_path / "net.trained.onnx").metadata_props}

    assert json.loads(kept["gradtool.classes"]) == {"labels": ["cat", "dog"]}
    assert json.loads(kept["gradtool.image"]) == {"mean": [0.5], "std": [1.0], "bgr": False}
    (tmp_path / "images" / "cat").rename(tmp_path / "images" / "zebra")
    again = run("train", "net.trained.onnx", "--loss", "ce", "--data", "images", "-o", "b.onnx")
    assert "its classes are not those" in again.err


def damaged(tmp_path, how):
    folder = tmp_path / "images"
    write_images(folder)
    path = folder / "cat" / "005.png"
    content = path.read_bytes()
    if how == "text":
        path.write_text("no image")
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "16 bits":
        from PIL import Image

        Image.fromarray(np.zeros((8, 6), np.uint16)).save(path)
    elif how == "small":
        from PIL import Image

        Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(path)
    elif how == "link":
        path.unlink()
        path.symlink_to("/dev/zero")
    elif how == "third":
        write_images(folder / "more", 1)
        (folder / "more" / "cat").rename(folder / "bird")
    elif how == "sets":
        (folder / "inner").mkdir()
        for name in ("cat", "dog"):
            (folder / name).rename(folder / "inner" / name)
    return folder


BROKEN = {
    "text": "cat/005.png: cannot be read as an image",
    "cut": "cat/005.png: cannot be read as an image",
    "16 bits": "cat/005.png: has more than 8 bits a channel",
    "small": "cat/005.png: is 4x6 pixels, less than the 8x6 that are cut out of it",
    "link": "cat/005.png: cannot be read",
    "third": "3 classes, and the model has 2",
    "sets": "holds the sets inner: name one, as ",
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_cannot_be_taken_is_one_line_that_names_the_file(files, tmp_path, how):
    folder = damaged(tmp_path, how)
    with pytest.raises(UsageError) as error:
        trained(files(image_model()), folder, image_crop="8x6")

    assert BROKEN[how] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image_size": "0"}, "--image-size 0: write pixels as 224"),
        ({"image_crop": "8xx6"}, "--image-crop 8xx6: write pixels"),
        ({"image_mean": "a"}, "--image-mean a: write a number"),
        ({"image_mean": "1,2"}, "--image-mean has 2 numbers, and images have 3 channels"),
        ({"image_std": "0"}, "has to be above 0"),
        ({"image_crop": "7x6"}, "input 'x' has size 7 on axis 2, the model takes 8"),
        ({"seconds": 1.0}, "--seconds needs a folder of recordings"),
        ({"categories": ["a"]}, "--categories needs a table"),
        ({"split": "0%"}, "--split 0%: 0 of 24 examples"),
        ({"split": "100%"}, "--split 100%: 24 of 24 examples"),
        ({"split": "ten"}, "--split ten: write a share as 10%"),
    ],
)
def test_options_that_fit_nothing_are_refused_before_the_first_step(files, tmp_path, options, said):
    write_images(tmp_path / "images")
    with pytest.raises(UsageError) as error:
        trained(files(image_model()), tmp_path / "images", **options)

    assert said in str(error.value)


@pytest.mark.parametrize("option", [{"flip": True}, {"image_size": "8"}, {"random_crop": 0}])
def test_options_of_images_need_images(files, option):
    given = {"x": np.zeros((8, 3, 8, 6), np.float32), "labels": np.zeros(8, np.int64)}
    with pytest.raises(UsageError, match="needs a folder of images"):
        trained(files(image_model()), given, **option)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_recordings_are_the_means_of_their_channels(files, tmp_path, width, channels):
    found = write_sounds(tmp_path / "sounds", width=width, channels=channels)
    given = {"x": found, "labels": np.repeat(np.arange(2), 6)}
    net = files(sound_model())

    assert trained(net, tmp_path / "sounds").losses == trained(net, given).losses


@pytest.mark.parametrize("length", [25, 60])
def test_recordings_are_cut_or_filled_up(files, tmp_path, length):
    found = write_sounds(tmp_path / "sounds", length=length)
    x = np.zeros((12, 40), np.float32)
    x[:, : min(length, 40)] = found[:, :40]
    net = files(sound_model())
    expected = trained(net, {"x": x, "labels": np.repeat(np.arange(2), 6)}).losses

    assert trained(net, tmp_path / "sounds").losses == expected
    assert trained(net, tmp_path / "sounds", seconds=0.005).losses == expected


def test_rates_and_lengths_that_differ_are_refused(files, tmp_path):
    write_sounds(tmp_path / "sounds")
    net = files(sound_model())
    with pytest.raises(UsageError, match=r"--seconds 1 are 8000 samples, the model takes 40"):
        trained(net, tmp_path / "sounds", seconds=1.0)
    mean = "m = ReduceMean <keepdims = 1> (x, axis)\n    h = MatMul (m, w1)"
    text = SOUNDS.replace("batch, 40", "batch, time").replace("h = MatMul (x, w1)", mean)
    open_one = files(build(text, w1=normal(1, 5), w2=normal(5, 2), axis=np.array([1])))
    with pytest.raises(UsageError, match="takes any length: give --seconds"):
        trained(open_one, tmp_path / "sounds")
    write_wav(tmp_path / "sounds" / "low" / "3.wav", np.zeros((40, 1), int), 16000, 2)
    with pytest.raises(UsageError, match=r"3\.wav: has 16000 samples a second, other .* 8000"):
        trained(net, tmp_path / "sounds")
    (tmp_path / "sounds" / "low" / "3.wav").write_bytes(b"RIFF")
    with pytest.raises(UsageError, match=r"3\.wav: cannot be read"):
        trained(net, tmp_path / "sounds")


def test_the_rate_is_kept_and_another_one_refused(run, files, tmp_path):
    write_sounds(tmp_path / "sounds")
    files(sound_model())
    assert run("train", "net.onnx", "--loss", "ce", "--data", "sounds").code == 0
    write_sounds(tmp_path / "other", rate=16000)
    outcome = run("train", "net.trained.onnx", "--loss", "ce", "--data", "other")

    assert outcome.code == 2
    assert "has 16000 samples a second, the model was trained on 8000" in outcome.err
