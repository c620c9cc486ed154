"""Holds ONNX files in onnxruntime to onegraph's own detections, with the program of docs/deploy.md.

    python3 tests/interchange/onnx_agreement.py target/release/onegraph IMAGES MODEL [MODEL..]

Needs onnx, onnxruntime, numpy, pillow, pycocotools. IMAGES is a folder, of which the first 20, named by number, are taken; a MODEL is a
run, or a folder with weights.safetensors and config.toml. Exports one file for each shape that `onegraph predict` pads
the images to, checks it, runs it on batches of 1, 2 and 5 images, and compares. Exit code 1 if more than rounding differs.
"""

import json
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path

import numpy
import onnx
from PIL import Image
from pycocotools import mask as coco

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
IMAGES, BATCHES = 20, (1, 2, 5)
# As the issue of the export has them: the same set above the score, and differences of at most these.
MIN_SCORE, MAX_DIFFERENCE, MIN_IOU = 0.05, 1e-3, 0.99
# A model that finds fewer shows nothing.
MIN_OBJECTS = 40


def onegraph(program, *arguments):
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def example(model, image, folder):
    """Runs the program of the page as it stands there, on a model and an image of the names that it has."""
    block = PAGE.read_text().split("```python\n")[1].split("```")[0]
    for name, target in (("model.onnx", model), ("street.jpg", image)):
        block = block.replace(f'"{name}"', repr(str(target)))
    names = {}
    exec(compile(block, str(PAGE), "exec"), names)
    return names["Detector"]


def source(model):
    weights = model / "weights.safetensors"
    return ["--weights", weights] if weights.is_file() else ["--run", model]


def padded(detector, image):
    height, width = detector.network_size(*image.shape[:2])
    divisor = detector.facts["size_divisor"]
    return tuple(-(-side // divisor) * divisor for side in (height, width))


def predicted(program, model, images, folder):
    onegraph(program, "predict", *source(model), "--device", "cpu", "--out", folder, *images)
    found = {int(image.stem): [] for image in images}
    for object in json.loads((folder / "predictions.json").read_text()):
        found[object["image_id"]].append(object)
    return list(found.values())


def compare(ours, theirs, classes, worst):
    """Pairs objects of an image; `theirs` is of onnxruntime. Updates the greatest differences."""
    x, y, w, h = numpy.array([o["bbox"] for o in ours]).reshape(-1, 4).T
    boxes = numpy.stack([x, y, x + w, y + h], 1)
    ids = [classes[label - 1]["id"] for label in theirs["labels"]]
    named = [i for i, label in enumerate(theirs["labels"]) if classes[label - 1]["name"] is not None]
    free = set(range(len(ours)))
    for i in named:
        same = [j for j in free if ours[j]["category_id"] == ids[i]]
        near = min(same, key=lambda j: abs(boxes[j] - theirs["boxes"][i]).max(), default=None)
        if near is None or abs(boxes[near] - theirs["boxes"][i]).max() > 1:
            if theirs["scores"][i] > MIN_SCORE + MAX_DIFFERENCE:
                sys.exit(f"only onnxruntime finds {ids[i]} {theirs['scores'][i]} {theirs['boxes'][i]}")
            continue
        free.remove(near)
        worst["box"] = max(worst["box"], abs(boxes[near] - theirs["boxes"][i]).max())
        worst["score"] = max(worst["score"], abs(ours[near]["score"] - theirs["scores"][i]))
        if "masks" in theirs:
            ours_mask, mask = coco.decode(ours[near]["segmentation"]).astype(bool), theirs["masks"][i]
            union = (ours_mask | mask).sum()
            worst["iou"] = min(worst["iou"], (ours_mask & mask).sum() / union if union else 1.0)
        worst["objects"] += 1
    for j in free:
        if ours[j]["score"] > MIN_SCORE + MAX_DIFFERENCE:
            sys.exit(f"only onegraph finds {ours[j]}")


def check(program, model, images, folder):
    onegraph(program, "export", *source(model), "--format", "onnx", "--out", folder / "any.onnx")
    Detector = example(folder / "any.onnx", images[0], folder)
    detector = Detector(folder / "any.onnx")
    expected = predicted(program, model, images, folder / "predicted")
    shapes = {}
    for i, path in enumerate(images):
        pixels = numpy.asarray(detector.read(path))
        shapes.setdefault(padded(detector, pixels), []).append(i)
    worst = {"box": 0.0, "score": 0.0, "iou": 1.0, "objects": 0}
    sizes = cycle(BATCHES)
    for (height, width), members in shapes.items():
        path = folder / f"{height}x{width}.onnx"
        shape = f"{height}x{width}"
        onegraph(program, "export", *source(model), "--format", "onnx", "--shape", shape, "--out", path)
        onnx.checker.check_model(str(path), full_check=True)
        detector = Detector(path)
        while members:
            size = next(sizes)
            batch, members = members[:size], members[size:]
            for i, found in zip(batch, detector([images[i] for i in batch])):
                compare(expected[i], found, detector.facts["classes"], worst)
    kind = "masks" if worst["iou"] < 1 else "no mask differs"
    print(
        f"{model.name}: {worst['objects']} objects on {len(images)} images of {len(shapes)} shapes: boxes differ by at most "
        f"{worst['box']:.1e} pixels, scores by {worst['score']:.1e}, mask IoU is at least {worst['iou']:.4f}"
    )
    if worst["objects"] < MIN_OBJECTS:
        sys.exit(f"fewer than {MIN_OBJECTS} objects")
    if max(worst["box"], worst["score"]) > MAX_DIFFERENCE or worst["iou"] <= MIN_IOU:
        sys.exit("they differ by more than rounding")


def main():
    program, folder, *models = map(Path, sys.argv[1:])
    files = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png"))[:IMAGES]
    for model in models:
        with tempfile.TemporaryDirectory() as scratch:
            # Decoders of JPEG differ by a step of a byte, which moves boxes by hundredths of a pixel.
            images = [Path(scratch) / f"{file.stem}.png" for file in files]
            for file, image in zip(files, images):
                Image.open(file).save(image)
            check(program.resolve(), model, images, Path(scratch))


if __name__ == "__main__":
    main()
