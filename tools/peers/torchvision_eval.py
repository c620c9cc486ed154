#!/usr/bin/env python3
"""Times detection with torchvision's maskrcnn_resnet50_fpn, for comparison with `bench infer`.

Eval mode, random weights, no download. The timed call is model(images): resizing, network and
boxes; cases with part `masks` also paste the masks at image size (not thresholded, not encoded).
Images are random noise of the network's input size, and are on the device before the clock starts.
Works with torch 1.13 and torchvision 0.14, and with newer versions.

Scores of random weights are meaningless: with --score-threshold 0 every image has the maximum
number of detections (--detections), as in `bench infer`; with the usual 0.05 there are none.
"""
import argparse
import json
import statistics
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--padded", default="800x1344", help="HEIGHTxWIDTH of the images")
    parser.add_argument("--batch", default="1,8", help="images per run, a list")
    parser.add_argument("--variants", default="", help="fp32, amp, fp32_nchw or amp_nchw; default: "
                        "fp32 on a CPU, fp32,amp on a GPU. channels_last unless _nchw")
    parser.add_argument("--images", type=int, default=64, help="images to time per batch size")
    parser.add_argument("--warmup", type=int, default=2, help="runs before the clock starts")
    parser.add_argument("--score-threshold", type=float, default=0.0)
    parser.add_argument("--detections", type=int, default=100, help="maximum detections per image")
    parser.add_argument("--classes", type=int, default=91, help="classes, including the background")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: torch's default")
    parser.add_argument("--budget", type=float, default=240, help="time limit in seconds")
    parser.add_argument("--json", help="file for the figures, rewritten after each")
    return parser.parse_args()


def make_model(args, torch):
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.models.resnet import resnet50
    from torchvision.ops import FrozenBatchNorm2d

    torch.manual_seed(0)
    # Frozen norms, as in maskrcnn_resnet50_fpn with published weights.
    body = resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
    for name, module in body.named_modules():
        if isinstance(module, FrozenBatchNorm2d):
            # Keeps activations of random weights within fp16.
            module.weight.fill_(0.3 if name.endswith("bn3") else 0.8)
    height, width = (int(side) for side in args.padded.split("x"))
    return MaskRCNN(
        _resnet_fpn_extractor(body, 3),
        args.classes,
        min_size=min(height, width),
        max_size=max(height, width),
        box_score_thresh=args.score_threshold,
        box_detections_per_img=args.detections,
    ).eval()


class Peer:
    """The model on a device, and its timing."""

    def __init__(self, args, torch, device):
        self.args, self.torch, self.device = args, torch, device
        self.cuda = device.type == "cuda"
        self.model = make_model(args, torch).to(device)
        self.paste = self.model.transform.postprocess

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def run(self, variant, batch, paste, left):
        """Times one case; stops early after `left` seconds."""
        torch, args = self.torch, self.args
        channels_last = not variant.endswith("_nchw")
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model.to(memory_format=layout)
        self.model.transform.postprocess = self.paste if paste else lambda found, *sizes: found
        height, width = (int(side) for side in args.padded.split("x"))
        images = [torch.rand(3, height, width, device=self.device) for _ in range(batch)]
        amp = variant.startswith("amp")
        half = torch.float16 if self.cuda else torch.bfloat16
        times, found, began = [], 0, time.perf_counter()
        runs = max(1, -(-args.images // batch))
        with torch.inference_mode(), torch.autocast(self.device.type, dtype=half, enabled=amp):
            for i in range(-args.warmup, runs):
                self.wait()
                started = time.perf_counter()
                results = self.model(images)
                self.wait()
                if i >= 0:
                    times.append(1e3 * (time.perf_counter() - started))
                    found += sum(len(result["boxes"]) for result in results)
                    if time.perf_counter() - began > left:
                        break
        times.sort()
        return {
            "variant": variant,
            "channels_last": channels_last,
            "part": "masks" if paste else "boxes",
            "batch_size": batch,
            "padded": args.padded,
            "images": batch * len(times),
            "runs": len(times),
            "images_per_second": 1e3 * batch * len(times) / sum(times),
            "p50_ms": statistics.median(times),
            "p95_ms": quantile(times, 0.95),
            "detections_per_image": found / (batch * len(times)),
        }


def quantile(ordered, share):
    """A quantile by linear interpolation, as in `bench`."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def describe(args, torch, torchvision, device):
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else "cpu, %d threads" % torch.get_num_threads()
    return {
        "kind": "torchvision_eval",
        "device": name,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "weights": "random",
        "score_threshold": args.score_threshold,
        "most_detections": args.detections,
        "cases": [],
        "failed": [],
    }


def main():
    args = parse()
    started = time.perf_counter()
    try:
        import torch
        import torchvision
    except Exception as fault:  # a broken package is treated as missing
        print("SKIPPED: torchvision cannot be imported: %s" % str(fault).splitlines()[0])
        return 0
    wanted = args.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: torch %s finds no GPU" % torch.__version__)
        return 0
    if args.threads:
        torch.set_num_threads(args.threads)
    device = torch.device(wanted)
    if wanted == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    report = describe(args, torch, torchvision, device)
    print("torchvision %(torchvision)s, torch %(torch)s | %(device)s" % report, flush=True)
    peer = Peer(args, torch, device)
    variants = args.variants or ("fp32,amp" if wanted == "cuda" else "fp32")
    cases = [
        (variant, int(batch), paste)
        for batch in args.batch.split(",")
        for variant in variants.split(",")
        for paste in (True, False)
    ]
    for i, (variant, batch, paste) in enumerate(cases):
        left = args.budget - (time.perf_counter() - started)
        if left <= 0:
            print("SKIPPED for lack of time: %s, batch %d" % (variant, batch), flush=True)
            continue
        try:
            # The remaining time is divided equally among the remaining cases.
            case = peer.run(variant, batch, paste, left / (len(cases) - i))
            report["cases"].append(case)
            print(
                "%(variant)-10s batch %(batch_size)2d  %(part)-5s  %(images_per_second)9.3f images/s"
                "  p50 %(p50_ms)9.2f ms  p95 %(p95_ms)9.2f ms  %(detections_per_image)6.1f "
                "detections an image" % case,
                flush=True,
            )
        except Exception as fault:  # out of memory, or an operator that does not support a type
            why = "%s, batch %d: %s" % (variant, batch, str(fault).splitlines()[0])
            report["failed"].append(why)
            print("FAILED " + why, flush=True)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(report, file, indent=1)
    return 0 if report["cases"] else 1


if __name__ == "__main__":
    sys.exit(main())
