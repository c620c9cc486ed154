"""Tests of the installed package: install the wheel that tools/release builds, then run
`python -m pytest python/tests`."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import onegraph
import pytest

COMMAND = Path(sys.executable).parent / "onegraph"


def keys(folder, **more):
    """Config values for quickstart with few images, in `folder`."""
    return {
        "train.run_dir": str(folder / "runs"),
        "data.synthetic.dir": str(folder / "data"),
        "data.synthetic.train_images": 32,
        "data.synthetic.val_images": 4,
        "train.steps": 12,
        "solver.warmup_steps": 4,
        "train.batch_size": 2,
        "train.checkpoint_every_steps": 5,
        "train.eval_every_steps": 0,
        **more,
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    rows = []
    folder = tmp_path_factory.mktemp("trained")
    run = onegraph.train("quickstart", device="cpu", progress=rows.append, **keys(folder))
    return run, rows, folder


@pytest.fixture(scope="module")
def picture(trained, tmp_path_factory):
    """An image of the training data, as an array and as a PNG."""
    image = onegraph.Store(store(trained))[3]["image"]
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    chunk = lambda kind, data: (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    )
    path = tmp_path_factory.mktemp("picture") / "7.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
    return image, path


def store(trained):
    return next(path.parent for path in trained[2].rglob("header.json") if "train" in str(path))


def weights(run):
    name = (run.path / "last_checkpoint").read_text().strip()
    found = [path for path in run.path.rglob("model.safetensors") if name in str(path)]
    return found[0].read_bytes()


def test_train_reports_each_step_and_returns_run(trained):
    run, rows, _ = trained
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 13))
    assert all(np.isfinite(row["loss"]) for row in rows if "loss" in row)
    assert run.metrics == rows
    assert run.report["steps"] == 12
    assert "[train]" in run.config


def test_predictions_match_predict_command(trained, picture, tmp_path):
    run, image, path = trained[0], *picture
    command = [COMMAND, "predict", "--run", run.path, "--out", tmp_path, "--device", "cpu", path]
    subprocess.run(command, check=True, capture_output=True)
    expected = json.loads((tmp_path / "predictions.json").read_text())
    model = run.predictor(device="cpu")
    found = model.predict(image)
    assert len(found) == len(expected) > 0
    for i, theirs in enumerate(expected):
        x1, y1, x2, y2 = found.boxes[i].astype(np.float64)
        assert np.float32(theirs["score"]) == found.scores[i]
        assert theirs["category_id"] == found.category_ids[i]
        assert theirs["segmentation"]["counts"] == found.rles[i]["counts"]
        assert np.allclose(theirs["bbox"], [x1, y1, x2 - x1, y2 - y1], rtol=0, atol=1e-3)
    for again in [model.predict(path), *model.predict([image, str(path)])]:
        assert np.array_equal(again.boxes, found.boxes)
        assert again.rles == found.rles


def test_masks_labels_and_names_are_consistent(trained, picture):
    model, image = trained[0].predictor(device="cpu"), picture[0]
    found = model.predict(image)
    assert found.masks.dtype == bool and found.masks.shape == (len(found), *image.shape[:2])
    assert found.names == [model.classes[label - 1] for label in found.labels]
    assert found.boxes.shape == (len(found), 4) and found.scores.dtype == np.float32
    assert list(found.scores) == sorted(found.scores, reverse=True)
    for mask, rle in zip(found.masks, found.rles):
        assert rle["size"] == list(image.shape[:2]) and isinstance(rle["counts"], str)
        assert mask.any() == (rle["counts"] != onegraph_empty(rle))


def onegraph_empty(rle):
    """The compressed RLE of an empty mask: 5 bits per character, lowest bits first, plus 48."""
    count, text = rle["size"][0] * rle["size"][1], ""
    while True:
        bits, count = count & 31, count >> 5
        last = count == 0 and not bits & 16
        text += chr(48 + (bits if last else bits | 32))
        if last:
            return text


def test_strided_array_view_is_read_correctly(trained, picture):
    model, image = trained[0].predictor(device="cpu"), picture[0]
    mirrored = model.predict(image[:, ::-1])
    assert np.array_equal(mirrored.boxes, model.predict(image[:, ::-1].copy()).boxes)
    assert not np.array_equal(mirrored.boxes, model.predict(image).boxes)


def test_predict_releases_the_gil(trained, picture):
    model, image = trained[0].predictor(device="cpu"), picture[0]
    done, counted = threading.Event(), []

    def count():
        while not done.is_set():
            counted.append(1)
            done.wait(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = len(counted)
    model.predict([image] * 20)
    during = len(counted) - before
    done.set()
    thread.join()
    assert during > 5


def test_store_is_a_sequence_of_images(trained):
    images = onegraph.Store(store(trained))
    assert len(images) == 32 == len(list(images))
    image = images[-1]
    assert image["id"] == images[31]["id"]
    height, width, _ = image["image"].shape
    assert image["image"].dtype == np.uint8
    assert image["masks"].shape == (len(image["labels"]), height, width)
    for box, mask, label in zip(image["boxes"], image["masks"], image["labels"]):
        rows, columns = np.nonzero(mask)
        assert box[0] <= columns.min() + 1 and columns.max() <= box[2]
        assert box[1] <= rows.min() + 1 and rows.max() <= box[3]
        assert 1 <= label <= len(images.classes)
    with pytest.raises(IndexError, match="image 32 of 32"):
        images[32]


def test_interrupted_run_resumes_bit_identically(tmp_path):
    def stop(row):
        if row.get("step") == 3:
            os.kill(os.getpid(), signal.SIGINT)

    # If a shell starts the tests in the background, SIGINT is ignored by default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # 100 steps take about two seconds, so the signal of step 3 arrives during training.
    more = {"train.steps": 100, "train.checkpoint_every_steps": 0, "train.name": "stopped"}
    with pytest.raises(KeyboardInterrupt):
        onegraph.train("quickstart", device="cpu", progress=stop, **keys(tmp_path, **more))
    run = onegraph.Run(tmp_path / "runs" / "stopped")
    steps = [row["step"] for row in run.metrics if "loss" in row]
    assert 3 <= len(steps) < 100
    rows = []
    whole = onegraph.train(resume=run.path, device="cpu", progress=rows.append)
    assert rows[0]["step"] == len(steps) + 1 and rows[-1]["step"] == 100
    more["train.name"] = "uninterrupted"
    other = onegraph.train("quickstart", device="cpu", **keys(tmp_path, **more))
    assert weights(whole) == weights(other)


def test_callback_exception_ends_run(tmp_path):
    def refuse(row):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        more = {"train.steps": 10_000}
        onegraph.train("quickstart", device="cpu", progress=refuse, **keys(tmp_path, **more))
    assert (tmp_path / "runs" / "quickstart" / "last_checkpoint").is_file()


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda model: model.predict(np.zeros((4, 4, 3))), "float64, shape"),
        (lambda model: model.predict(np.zeros((4, 4, 4), np.uint8)), "3 channels"),
        (lambda model: model.predict(np.zeros((4, 4), np.uint8)), "height, width, 3"),
        (lambda model: model.predict(np.zeros((0, 4, 3), np.uint8)), "0x4"),
        (lambda model: model.predict("no-such.png"), "no-such.png"),
        (lambda model: model.predict(7), "int"),
        (lambda model: onegraph.Predictor("no-such-run"), "no-such-run"),
        (lambda model: onegraph.Predictor("no-such-run", device="gpu"), "auto, cpu or cuda"),
        (lambda model: onegraph.Predictor("run", checkpoint="first"), "best or last"),
        (lambda model: onegraph.Store("no-such.store"), "no-such.store"),
        (lambda model: onegraph.Run("no-such-run"), "no-such-run"),
        (lambda model: onegraph.train(), "either"),
        (lambda model: onegraph.train("tiny", resume="run"), "either"),
        (lambda model: onegraph.train("no-such-preset"), "no-such-preset"),
        (lambda model: onegraph.train("tiny", **{"train.stepz": 1}), "train.stepz"),
        (lambda model: onegraph.train("tiny", **{"train.steps": "many"}), "train.steps"),
    ],
)
def test_invalid_argument_raises_one_line_error(trained, call, sentence):
    with pytest.raises(onegraph.Error, match=sentence) as fault:
        call(trained[0].predictor(device="cpu"))
    assert "panicked" not in str(fault.value)


def test_documented_examples_run(trained, picture, tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "docs" / "python.md"
    blocks = [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]
    assert len(blocks) == 3
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "finetune_r18").symlink_to(trained[0].path.resolve())
    (tmp_path / "train.store").symlink_to(store(trained).resolve())
    (tmp_path / "street.jpg").symlink_to(picture[1])
    monkeypatch.chdir(tmp_path)
    # The second example trains for long, so only its arguments are checked.
    seen = {}
    run = lambda config, **keys: seen.update(keys, config=config) or onegraph.Run(trained[0].path)
    monkeypatch.setattr(onegraph, "train", run)
    for block in blocks:
        exec(compile(block, str(page), "exec"), {"onegraph": onegraph})
    assert seen["config"] == "finetune_r18" and seen["data.train_store"] == "train.store"
    assert "(" in capsys.readouterr().out


def test_command_is_installed():
    version = subprocess.run([COMMAND, "--version"], check=True, capture_output=True, text=True)
    assert version.stdout.startswith("onegraph ")
