"""Compares detections of ONNX files in onnxruntime and OpenVINO with onegraph's, by the programs in docs/deploy.md.

    python3 tests/interchange/onnx_agreement.py target/release/onegraph IMAGES MODEL [MODEL..]

Requires the packages in onnx.txt. IMAGES is a folder of files named by number, of which the first 20 are used; a
MODEL is a run, or a folder with weights.safetensors and config.toml. Exports a file for each shape to which `onegraph
predict` pads the images, checks it, runs it on batches of 1, 2 and 5 images, and compares; OpenVINO runs one shape.
Exit code 1 if results differ by more than rounding.
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
# Detections above MIN_SCORE must match, with at most these differences.
MIN_SCORE, MAX_DIFFERENCE, MIN_IOU = 0.05, 1e-3, 0.99
# With fewer detections the comparison would prove nothing.
MIN_OBJECTS = 30


def onegraph(program, *arguments):
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def example(model, image):
    """Runs the programs of the page, with its file names replaced by this model and image."""
    blocks = [part.split("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    names = {}
    for block in blocks:
        for name, target in (("model.onnx", model), ("street.jpg", image)):
            block = block.replace(f'"{name}"', repr(str(target)))
        exec(compile(block, str(PAGE), "exec"), names)
    return names["Detector"], names["OpenVinoDetector"]


def source(model):
    weights = model / "weights.safetensors"
    return ["--weights", weights] if weights.is_file() else ["--run", model]


def padded(detector, image):
    """The shape that `onegraph predict` pads the image to."""
    divisor = detector.facts["size_divisor"]
    sides = detector.network_size(*image.shape[:2])
    return tuple(-(-side // divisor) * divisor for side in sides)


def predicted(program, model, images, folder):
    onegraph(program, "predict", *source(model), "--device", "cpu", "--out", folder, *images)
    found = {int(image.stem): [] for image in images}
    for object in json.loads((folder / "predictions.json").read_text()):
        found[object["image_id"]].append(object)
    return list(found.values())


def compare(ours, theirs, classes, ratio, worst):
    """Pairs objects of an image; `theirs` is the other runtime's. Updates the largest differences; box
    differences are in pixels of the resized image, and a pixel of the original image is `ratio` of them."""
    x, y, w, h = numpy.array([o["bbox"] for o in ours]).reshape(-1, 4).T
    boxes = numpy.stack([x, y, x + w, y + h], 1)
    ids = [classes[label - 1]["id"] for label in theirs["labels"]]
    named = [i for i, label in enumerate(theirs["labels"]) if classes[label - 1]["name"] is not None]
    free = set(range(len(ours)))
    for i in named:
        same = [j for j in free if ours[j]["category_id"] == ids[i]]
        distance = lambda j: ratio * abs(boxes[j] - theirs["boxes"][i]).max()  # noqa: E731
        near = min(same, key=distance, default=None)
        if near is None or distance(near) > 1:
            if theirs["scores"][i] > MIN_SCORE + MAX_DIFFERENCE:
                sys.exit(f"only the file finds {ids[i]} {theirs['scores'][i]} {theirs['boxes'][i]}")
            continue
        free.remove(near)
        worst["box"] = max(worst["box"], distance(near))
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
    export = ["export", *source(model), "--format", "onnx"]
    onegraph(program, *export, "--out", folder / "any.onnx")
    runtimes = example(folder / "any.onnx", images[0])
    detector = runtimes[0](folder / "any.onnx")
    expected = predicted(program, model, images, folder / "predicted")
    shapes = {}
    for i, path in enumerate(images):
        shapes.setdefault(padded(detector, detector.read(path)), []).append(i)
    for height, width in shapes:
        shape = f"{height}x{width}"
        onegraph(program, *export, "--shape", shape, "--out", folder / f"{shape}.onnx")
        onnx.checker.check_model(folder / f"{shape}.onnx", full_check=True)
    # For the second runtime, the shape with the most images is enough.
    most = max(shapes, key=lambda shape: len(shapes[shape]))
    for runtime, shapes in zip(runtimes, (shapes, {most: shapes[most]})):
        worst = {"box": 0.0, "score": 0.0, "iou": 1.0, "objects": 0}
        sizes = cycle(BATCHES)
        for shape, members in shapes.items():
            detector = runtime(folder / f"{shape[0]}x{shape[1]}.onnx")
            while members:
                size = next(sizes)
                batch, members = members[:size], members[size:]
                for i, found in zip(batch, detector([images[i] for i in batch])):
                    height, width, _ = detector.read(images[i]).shape
                    ratio = detector.network_size(height, width)[0] / height
                    compare(expected[i], found, detector.facts["classes"], ratio, worst)
        print(
            f"{model.name}, {runtime.__name__}: {worst['objects']} objects on {sum(map(len, shapes.values()))} images of"
            f" {len(shapes)} shapes; boxes differ by at most {worst['box']:.1e} pixels, scores by {worst['score']:.1e}, mask IoU is at least"
            f" {worst['iou']:.5f}"
        )
        if runtime is runtimes[0] and worst["objects"] < MIN_OBJECTS:
            sys.exit(f"fewer than {MIN_OBJECTS} objects")
        if max(worst["box"], worst["score"]) > MAX_DIFFERENCE or worst["iou"] <= MIN_IOU:
            sys.exit("they differ by more than rounding")


def main():
    program, folder, *models = map(Path, sys.argv[1:])
    files = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png"))[:IMAGES]
    for model in models:
        with tempfile.TemporaryDirectory() as scratch:
            # JPEG decoders differ by one byte level, which moves boxes by hundredths of a pixel.
            images = [Path(scratch) / f"{file.stem}.png" for file in files]
            for file, image in zip(files, images):
                Image.open(file).save(image)
            check(program.resolve(), model, images, Path(scratch))


if __name__ == "__main__":
    main()
