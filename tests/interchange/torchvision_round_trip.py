"""Holds onegraph's files of weights to torchvision's own models, in every form and back.

    python3 tests/interchange/torchvision_round_trip.py target/release/onegraph

Needs torch, torchvision, safetensors. Builds torchvision's Mask R-CNN R50-FPN with frozen norms, as
maskrcnn_resnet50_fpn has them, then maskrcnn_resnet50_fpn_v2, each with random weights and statistics; saves it with
both serializations of torch.save, exports it again, and loads that into torchvision with strict=True. Exit code 1 if a
bit differs. Detections are held to torchvision's recorded ones by tests/golden/model_eval.rs.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from torchvision.models.detection import MaskRCNN, maskrcnn_resnet50_fpn_v2
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.misc import FrozenBatchNorm2d

DETECTRON2_SHAPES = {
    "backbone.bottom_up.stem.conv1.norm.running_var": (64,),
    "backbone.bottom_up.res5.2.conv3.weight": (2048, 512, 1, 1),
    "backbone.fpn_lateral5.weight": (256, 2048, 1, 1),
    "roi_heads.box_head.fc1.weight": (1024, 256 * 7 * 7),
    "roi_heads.box_predictor.cls_score.weight": (91, 1024),
    "roi_heads.box_predictor.bbox_pred.weight": (360, 1024),
    "roi_heads.mask_head.predictor.weight": (90, 256, 1, 1),
}


def build(preset):
    if preset == "torchvision_r50_v2":
        return maskrcnn_resnet50_fpn_v2(weights=None, weights_backbone=None, num_classes=91)
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    return MaskRCNN(backbone, 91)


def export(program, preset, weights, name, file, *more):
    """The file of `onegraph export`, as torch reads it."""
    source = ["--weights", weights, "--config", preset, "--format", name, *more, "--out", file]
    done = subprocess.run([program, "export", *map(str, source)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{weights} as {name}: {done.stderr}")
    return load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True)


def check_same_bits(state, original, what):
    if sorted(state) != sorted(original):
        sys.exit(f"{what}: other names: {set(state) ^ set(original)}")
    for name, tensor in original.items():
        if state[name].dtype != tensor.dtype or not torch.equal(state[name], tensor):
            sys.exit(f"{what}: {name} has other values")
    print(f"  {what}: {len(original)} tensors, bitwise equal")


def round_trip(program, preset):
    folder = Path(tempfile.mkdtemp())
    model = build(preset)
    # Nothing reads the counters of batch norms: no file of onegraph has them, and torchvision makes them anew.
    original = {name: t for name, t in model.state_dict().items() if not name.endswith(".num_batches_tracked")}
    for tensor in original.values():
        tensor.uniform_(0.5, 1.5)
    print(f"{preset}, torch {torch.__version__}")
    torch.save(original, folder / "zip.pth")
    torch.save(original, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({"model": model.state_dict(), "epoch": 25}, folder / "checkpoint.pth")
    for source in ["zip.pth", "legacy.pth", "checkpoint.pth"]:
        for form in [".pth", ".safetensors"]:
            state = export(program, preset, folder / source, "torchvision", folder / f"back{form}")
            check_same_bits(state, original, f"torchvision -> {source} -> onegraph -> {form}")
            build(preset).load_state_dict(state, strict=True)
    theirs = export(program, preset, folder / "zip.pth", "detectron2", folder / "d2.pth", "--names-only")
    if any(tuple(theirs[name].shape) != shape for name, shape in DETECTRON2_SHAPES.items()):
        sys.exit("other shapes than detectron2's")
    bias, moved = (s["roi_heads.box_predictor.cls_score.bias"] for s in (original, theirs))
    if not torch.equal(torch.roll(bias, -1), moved):
        sys.exit("the background is not last")


if __name__ == "__main__":
    for name in ["torchvision_r50", "torchvision_r50_v2"]:
        round_trip(sys.argv[1], name)
