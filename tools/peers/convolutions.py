#!/usr/bin/env python3
"""Times cuDNN on the convolutions of one training step, through PyTorch: forward and gradients, fp16,
channels last, cudnn.benchmark on, each shape separately.

The shapes come from `bench nodes --shapes FILE`: a list of objects with op, pass, n, h, w, c, k, r,
s, stride, pad and count (launches per step). Shapes with the most FLOPs are measured first. Times
do not include bias, ReLU, norm or addition, which onegraph computes in the same kernel. Random
data; each time is the median of the runs, timed with CUDA events; L2 is not flushed between runs.
The file of --json is rewritten after each figure. On a CPU (--device cpu --tiny) the figures only
show that the script runs.
"""
import argparse
import json
import os
import statistics
import sys
import time

# About half a millisecond, longer than the host takes to queue a run.
LEAD_CYCLES = 1_000_000


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", required=True, help="file written by `bench nodes --shapes`")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--tiny", action="store_true", help="reduce all sizes, to test the script")
    parser.add_argument("--repeats", type=int, default=10, help="timed runs per shape")
    parser.add_argument("--budget", type=float, default=60, help="time limit in seconds")
    parser.add_argument("--json", help="file for the figures, rewritten after each")
    return parser.parse_args()


def write(path, value):
    """Replaces the file atomically: a reader sees the old or the new contents."""
    if path:
        with open(path + ".new", "w") as file:
            json.dump(value, file, indent=1)
        os.replace(path + ".new", path)


def out_size(shape):
    """Height and width of the output."""
    if "transpose" in shape["op"]:
        return shape["h"] * shape["stride"], shape["w"] * shape["stride"]
    size = lambda side, kernel: (side + 2 * shape["pad"] - kernel) // shape["stride"] + 1
    return size(shape["h"], shape["r"]), size(shape["w"], shape["s"])


def flops(shape):
    """FLOPs of one run, which are equal for all three passes."""
    height, width = out_size(shape)
    if "transpose" in shape["op"]:
        height, width = shape["h"], shape["w"]
    window = shape["r"] * shape["s"]
    return 2 * shape["n"] * height * width * shape["c"] * shape["k"] * window


def runs(torch, device, shape):
    """A function for each of the three passes of a shape, by name."""
    dtype = torch.float16 if device == "cuda" else torch.float32
    random = lambda *sizes: torch.randn(*sizes, device=device, dtype=dtype)
    n, h, w, c, k, r, s = (shape[key] for key in "nhwckrs")
    if shape["op"] == "linear":
        x, dy, weight = random(n * h * w, c), random(n * h * w, k), random(k, c)
        return {
            "forward": lambda: torch.mm(x, weight.t()),
            "grad_input": lambda: torch.mm(dy, weight),
            "grad_weight": lambda: torch.mm(dy.t(), x),
        }
    last = lambda tensor: tensor.contiguous(memory_format=torch.channels_last)
    transposed = "transpose" in shape["op"]
    height, width = out_size(shape)
    x, dy = last(random(n, c, h, w)), last(random(n, k, height, width))
    weight = last(random(*((c, k, r, s) if transposed else (k, c, r, s))))
    stride, pad, no = [shape["stride"]] * 2, [shape["pad"]] * 2, [0, 0]

    def gradient(mask):
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, weight, None, stride, pad, [1, 1], transposed, no, 1, mask)

    forward = lambda: torch.ops.aten.convolution(
        x, weight, None, stride, pad, [1, 1], transposed, no, 1)
    return {
        "forward": forward,
        "grad_input": gradient([True, False, False]),
        "grad_weight": gradient([False, True, False]),
    }


def median_ms(torch, device, run, repeats):
    for _ in range(3):
        run()
    # Not in PyTorch's documented API; without _sleep, short runs appear longer than they are.
    lead = getattr(torch.cuda, "_sleep", lambda cycles: None)
    times = []
    for _ in range(repeats):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # Keeps the GPU busy while the host queues the run; otherwise queueing would be timed.
            lead(LEAD_CYCLES)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def read_shapes(args):
    """The file's contents, and its shapes sorted by FLOPs per step, descending."""
    with open(args.shapes) as file:
        step = json.load(file)
    shapes = step["shapes"]
    for shape in shapes if args.tiny else []:
        for key, most in (("n", 2), ("h", 8), ("w", 8), ("c", 16), ("k", 16)):
            shape[key] = min(shape[key], most)
    shapes.sort(key=lambda shape: -flops(shape) * shape["count"])
    return step, shapes


def main():
    args = parse()
    until = time.time() + args.budget
    try:
        import torch
    except ImportError:
        print("SKIPPED: no PyTorch")
        return 0
    if args.device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU")
        return 0
    if not os.path.isfile(args.shapes):
        print(f"SKIPPED: {args.shapes}, the list of shapes, does not exist")
        return 0
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    step, shapes = read_shapes(args)
    cudnn = torch.backends.cudnn.version() if args.device == "cuda" else None
    value = {
        "kind": "figures", "product": f"PyTorch {torch.__version__}, cuDNN {cudnn}",
        "preset": step.get("preset"), "batch": step.get("batch"), "padded": step.get("padded"),
        "shapes_in_all": len(shapes), "step_ms": 0.0, "step_tflop": 0.0, "failed": [], "figures": [],
    }
    for shape in shapes:
        if time.time() > until:
            break
        what = "{op} {pass}, {n} of {h}x{w}, {c} to {k}, {r}x{s}, stride {stride}, pad {pad}"
        what = what.format(**shape)
        try:
            ms = median_ms(torch, args.device, runs(torch, args.device, shape)[shape["pass"]],
                           args.repeats)
        except (RuntimeError, KeyError) as fault:
            value["failed"].append(f"{what}: {type(fault).__name__}: {str(fault)[:200]}")
            print(f"FAILED {value['failed'][-1]}", flush=True)
            write(args.json, value)
            continue
        work = flops(shape)
        value["figures"].append({
            "what": what, "value": work / ms / 1e9, "unit": "TFLOP/s", "p50_ms": ms,
            "count": shape["count"], "shape": shape,
        })
        value["step_ms"] += ms * shape["count"]
        value["step_tflop"] += work * shape["count"] / 1e12
        print(f"{what}: {ms:.4f} ms, {work / ms / 1e9:.1f} TFLOP/s, {shape['count']} a step",
              flush=True)
        write(args.json, value)
    done = len(value["figures"])
    print(f"figure: {done} of {len(shapes)} shapes, {value['step_ms']:.2f} ms of a step for "
          f"{value['step_tflop']:.2f} TFLOP, {len(value['failed'])} failed, {value['product']}")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
