"""Compares detections of onegraph and torchvision for the same weights, exchanged both ways in every file format.

    python3 tests/interchange/torchvision_round_trip.py target/release/onegraph

Requires torch, torchvision, numpy, pillow, safetensors. Builds torchvision's maskrcnn_resnet50_fpn, with frozen norms,
and maskrcnn_resnet50_fpn_v2, each with random weights whose norms and predictors are scaled so that scores are well
spread; saves each with both serializations of torch.save, runs `onegraph predict` on synthetic images, exports the
weights again, loads them into torchvision with strict=True, and compares. Exit code 1 if results differ by more than
rounding.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn import BatchNorm2d
from torchvision.models.detection import MaskRCNN, maskrcnn_resnet50_fpn_v2
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.resnet import Bottleneck
from torchvision.ops.misc import FrozenBatchNorm2d

# torchvision's 91 outputs include some without a COCO category: onegraph drops their detections.
NO_CATEGORY = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
SIZES = [(160, 200), (144, 144), (200, 150)]
MIN_SIZE, MAX_SIZE = 160, 224
SETS = [f"input.min_size={MIN_SIZE}", f"input.max_size={MAX_SIZE}"]
# Detections that torchvision keeps per image.
PER_IMAGE = 100
# float32 on both sides, with a different summation order: network outputs agree to about 1e-5.
MAX_SCORE_DIFFERENCE, MAX_BOX_DIFFERENCE = 1e-4, 1e-2
# Pixels whose probability is this close to the threshold are not compared.
MASK_MARGIN = 1e-3
# torchvision pastes a mask into its box widened by PASTE_WIDENING and truncated to integers: a side
# this close to one may be truncated to either, which moves the mask.
PASTE_MARGIN, PASTE_WIDENING = 2e-3, 30 / 28


def build(preset):
    torch.manual_seed(0)
    if preset == "torchvision_r50_v2":
        sizes = {"min_size": MIN_SIZE, "max_size": MAX_SIZE}
        return maskrcnn_resnet50_fpn_v2(weights=None, weights_backbone=None, num_classes=91, **sizes).eval()
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    return MaskRCNN(backbone, 91, min_size=MIN_SIZE, max_size=MAX_SIZE).eval()


def spread(model, images):
    """Sets the running statistics of norms from their inputs, and scales the outputs of predictors."""

    def normalise(norm, inputs):
        mean, var = inputs[0].mean((0, 2, 3)), inputs[0].var((0, 2, 3))
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(var)
        # Branches add little to their block's input, as in trained networks: with equal size, 16
        # blocks would amplify rounding a thousandfold.
        low, high = (0.1, 0.3) if norm in last else (0.5, 1.5)
        norm.weight.uniform_(low, high)
        norm.bias.uniform_(-0.1, 0.1)

    def scale(std):
        def hook(layer, inputs, output):
            factor = std / output.std()
            layer.weight.mul_(factor)
            layer.bias.mul_(factor)
            return output * factor

        return hook

    roi, rpn = model.roi_heads, model.rpn.head
    layers = [
        (rpn.cls_logits, 2.0),
        (rpn.bbox_pred, 0.2),
        (roi.box_predictor.cls_score, 3.0),
        (roi.box_predictor.bbox_pred, 0.5),
        (roi.mask_predictor.mask_fcn_logits, 2.0),
    ]
    norms = [m for m in model.modules() if isinstance(m, (FrozenBatchNorm2d, BatchNorm2d))]
    last = [m.bn3 for m in model.backbone.body.modules() if isinstance(m, Bottleneck)]
    hooks = [norm.register_forward_pre_hook(normalise) for norm in norms]
    hooks += [layer.register_forward_hook(scale(std)) for layer, std in layers]
    with torch.no_grad():
        model(images[:1])
    for hook in hooks:
        hook.remove()


def draw(folder):
    """Images of blocky noise and rectangles, as PNG files and as tensors for torchvision."""
    random = numpy.random.default_rng(0)
    tensors = []
    for number, (height, width) in enumerate(SIZES, 1):
        blocks = random.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3))
        pixels = blocks.repeat(8, 0).repeat(8, 1)[:height, :width].astype(numpy.uint8)
        for _ in range(4):
            y, x = random.integers(0, height - 40), random.integers(0, width - 40)
            pixels[y : y + 40, x : x + 30] = random.integers(0, 256, 3)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        tensors.append(torch.from_numpy(pixels).permute(2, 0, 1).float() / 255)
    return tensors


def detect(model, images):
    """Image by image, as `onegraph predict` does: a batch would be padded to its largest image."""
    with torch.no_grad():
        return [model([image])[0] for image in images]


def onegraph(program, *arguments):
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def predict(program, preset, folder, weights, *more):
    out = folder / f"out-{weights.name}"
    sets = [part for value in SETS for part in ("--set", value)]
    config = ["--config", preset]
    onegraph(program, "predict", "--weights", weights, *config, *sets, *more, "--out", out, folder / "images")
    return json.loads((out / "predictions.json").read_text())


def decode(segmentation):
    """COCO's compressed run lengths, column by column."""
    height, width = segmentation["size"]
    text, runs, at = segmentation["counts"], [], 0
    while at < len(text):
        value, shift, more = 0, 0, True
        while more:
            code = ord(text[at]) - 48
            value |= (code & 31) << shift
            more, at, shift = code & 32, at + 1, shift + 5
            if not more and code & 16:
                value |= -1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
    flat = numpy.repeat(numpy.arange(len(runs)) % 2, runs)
    return flat.reshape(width, height).T.astype(bool)


def compare(found, expected):
    """Pairs detections in order of score, and prints the largest differences."""
    score_difference = box_difference = 0.0
    pixels, count, uncertain = 0, 0, 0
    for number, ours in enumerate(expected, 1):
        theirs = [d for d in found if d["image_id"] == number]
        kept = [i for i, label in enumerate(ours["labels"].tolist()) if label not in NO_CATEGORY]
        ours = {key: values[kept] for key, values in ours.items()}
        if len(theirs) != len(kept):
            sys.exit(f"image {number}: {len(theirs)} detections, torchvision has {len(kept)}")
        lowest = ours["scores"].min()
        free = set(range(len(theirs)))
        for label, box, score, mask in zip(ours["labels"], ours["boxes"], ours["scores"], ours["masks"]):
            x1, y1, x2, y2 = box.tolist()
            distance = lambda i: max(  # noqa: E731
                abs(a - b) for a, b in zip(theirs[i]["bbox"], (x1, y1, x2 - x1, y2 - y1))
            )
            same = [i for i in free if theirs[i]["category_id"] == int(label)]
            if not same:
                sys.exit(f"image {number}: no detection of class {int(label)} is left for {box.tolist()}")
            best = min(same, key=distance)
            # The last entry of a full list may be any of several detections with almost equal scores.
            is_last = len(expected[number - 1]["scores"]) == PER_IMAGE and score - lowest <= MAX_SCORE_DIFFERENCE
            if is_last and distance(best) > MAX_BOX_DIFFERENCE:
                continue
            free.remove(best)
            score_difference = max(score_difference, abs(theirs[best]["score"] - float(score)))
            box_difference = max(box_difference, distance(best))
            count += 1
            if not paste_is_certain(box.double()):
                uncertain += 1
                continue
            certain = ((mask[0] - 0.5).abs() > MASK_MARGIN).numpy()
            others = decode(theirs[best]["segmentation"]) != (mask[0] > 0.5).numpy()
            pixels += int((others & certain).sum())
    print(
        f"  {count} detections: scores differ by at most {score_difference:.2e}, boxes by "
        f"{box_difference:.2e} pixels, masks in {pixels} pixels that are not within {MASK_MARGIN} of their threshold; "
        f"{uncertain} masks may be a pixel off, and are not compared"
    )
    if score_difference > MAX_SCORE_DIFFERENCE or box_difference > MAX_BOX_DIFFERENCE or pixels > 0:
        sys.exit("they differ by more than rounding")


def paste_is_certain(box):
    """True if no side of the box into which the mask is pasted is within PASTE_MARGIN of an integer."""
    low, high = box[:2], box[2:]
    middle, half = (low + high) / 2, (high - low) / 2 * PASTE_WIDENING
    sides = torch.cat([middle - half, middle + half])
    return bool(((sides - sides.round()).abs() > PASTE_MARGIN).all())


def check_same_bits(state, original, what):
    if list(sorted(state)) != list(sorted(original)):
        sys.exit(f"{what}: names differ: {set(state) ^ set(original)}")
    for name, tensor in original.items():
        if state[name].dtype != tensor.dtype or not torch.equal(state[name], tensor):
            sys.exit(f"{what}: {name} has different values")
    print(f"  {what}: {len(original)} tensors, bitwise equal")


def round_trip(program, preset):
    folder = Path(tempfile.mkdtemp())
    (folder / "images").mkdir()
    images = draw(folder / "images")
    model = build(preset)
    spread(model, images)
    # The counters of batch norms are unused: onegraph's files do not have them, and torchvision
    # initialises them.
    original = {name: t for name, t in model.state_dict().items() if not name.endswith(".num_batches_tracked")}
    expected = detect(model, images)
    print(f"{preset}, torch {torch.__version__}: {sum(len(d['labels']) for d in expected)} detections")

    torch.save(original, folder / "zip.pth")
    torch.save(original, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({"model": model.state_dict(), "epoch": 25}, folder / "checkpoint.pth")
    first = None
    for name in ["zip.pth", "legacy.pth", "checkpoint.pth"]:
        print(f"torchvision -> {name} -> onegraph")
        found = predict(program, preset, folder, folder / name)
        compare(found, expected)
        if found != (first := first or found):
            sys.exit("detections differ from those with the first file")

    source = ["export", "--weights", folder / "zip.pth", "--config", preset]
    for name in ["back.pth", "back.safetensors"]:
        print(f"onegraph -> {name} -> torchvision")
        onegraph(program, *source, "--format", "torchvision", "--out", folder / name)
        is_torch = name.endswith(".pth")
        path = folder / name
        state = torch.load(path, weights_only=True) if is_torch else load_file(path)
        check_same_bits(state, original, name)
        again = build(preset)
        again.load_state_dict(state, strict=True)
        for before, after in zip(expected, detect(again, images)):
            if any(not torch.equal(before[key], after[key]) for key in before):
                sys.exit("torchvision's detections differ")
        print("  torchvision detects the same, bitwise")

    for name in ["d2.pth", "d2.safetensors"]:
        print(f"onegraph -> {name} (detectron2's names) -> onegraph")
        onegraph(program, *source, "--format", "detectron2", "--names-only", "--out", folder / name)
        if name.endswith(".pth"):
            state = torch.load(folder / name, weights_only=True)
            shapes = {
                "backbone.bottom_up.stem.conv1.norm.running_var": (64,),
                "backbone.bottom_up.res5.2.conv3.weight": (2048, 512, 1, 1),
                "backbone.fpn_lateral5.weight": (256, 2048, 1, 1),
                "roi_heads.box_head.fc1.weight": (1024, 256 * 7 * 7),
                "roi_heads.box_predictor.cls_score.weight": (91, 1024),
                "roi_heads.box_predictor.bbox_pred.weight": (360, 1024),
                "roi_heads.mask_head.predictor.weight": (90, 256, 1, 1),
            }
            if any(tuple(state[name].shape) != shape for name, shape in shapes.items()):
                sys.exit("shapes differ from detectron2's")
            bias, theirs = (s["roi_heads.box_predictor.cls_score.bias"] for s in (original, state))
            if not torch.equal(torch.roll(bias, -1), theirs):
                sys.exit("the background is not last")
        if predict(program, preset, folder, folder / name, "--names-only") != first:
            sys.exit("detections differ from those with the first file")
        print("  the same detections, bitwise")


if __name__ == "__main__":
    for name in ["torchvision_r50", "torchvision_r50_v2"]:
        round_trip(sys.argv[1], name)
