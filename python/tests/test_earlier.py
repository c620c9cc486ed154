"""Uses each public name that the package had at commit 80c2d0ae, on files that its binary wrote."""

import json
import shutil
from pathlib import Path

import numpy as np
import onegraph
import pytest

EARLIER = Path(__file__).resolve().parents[2] / "tests/earlier/80c2d0ae"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: a copy of the files, at the relative paths that their configs use."""
    shutil.copytree(EARLIER, tmp_path / "earlier")
    monkeypatch.chdir(tmp_path / "earlier")
    return tmp_path / "earlier"


@pytest.mark.parametrize("name", ["masks", "keypoints"])
def test_earlier_run_loads_and_detects(folder, name):
    run = onegraph.Run(f"runs/{name}")
    assert [row["step"] for row in run.metrics if "loss" in row] == [1, 2, 3, 4]
    assert run.report["state"] == "done" and "[model]" in run.config
    assert name in repr(run) and "report.html" in run._repr_html_()

    images = ["set/images/000000000001.jpg", onegraph.Store("shapes.store")[0]["image"]]
    model = run.predictor(device="cpu", **{"model.detections.per_image": 4})
    found, same = model.predict(images)
    again = onegraph.Predictor(path=f"runs/{name}", device="cpu", config=None).predict(images[0])
    written = json.loads((folder / f"predicted/{name}.json").read_text())
    assert len(found) == len(same) == len(again) == len(written) > 0
    assert [object["score"] for object in written] == pytest.approx(found.scores.tolist())
    assert found.boxes.shape == (len(found), 4) and found.scores.dtype == np.float32
    assert found.names == [model.classes[label - 1] for label in found.labels]
    assert found.category_ids.tolist() == [object["category_id"] for object in written]
    if name == "masks":
        assert found.masks.shape == (len(found), 48, 48) and found.keypoints is None
        assert found.rles[0] == written[0]["segmentation"]
    else:
        assert found.keypoints.shape == (len(found), 5, 3)
        assert found.masks is None and found.rles is None


def test_earlier_store_opens(folder):
    store = onegraph.Store(path="shapes.store")
    names = {"id", "file_name", "image", "boxes", "labels", "crowd", "masks", "keypoints"}
    assert (len(store), len(store.classes)) == (6, 4)
    assert all(names <= set(image) and image["image"].shape == (48, 48, 3) for image in store)
    assert isinstance(onegraph.Detections, type)
    with pytest.raises(onegraph.Error):
        onegraph.Store("runs")


def test_earlier_run_is_resumed_by_the_same_call(folder):
    rows = []
    run = onegraph.train(
        resume="runs/masks", device="cpu", progress=rows.append, **{"train.steps": 5}
    )
    assert isinstance(run, onegraph.Run) and rows[-1]["step"] == 5
    assert set(onegraph.__all__) >= {"Detections", "Error", "Predictor", "Run", "Store", "train"}
