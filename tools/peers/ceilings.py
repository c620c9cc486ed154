#!/usr/bin/env python3
"""Measures PyTorch's throughput on this GPU for the two limits of a kernel: an fp16 GEMM (TFLOP/s)
and a copy of device memory (GB/s, bytes read and written).

The data is random, and the GPU is warmed up; each figure is the median of its runs, timed with CUDA
events. The file of --json is rewritten after each figure; `bench nodes --ceilings` reads its
`fp16_tflops` and `copy_gb_per_s`. On a CPU (--device cpu --tiny) the GEMM is in fp32, and the
figures only show that the script runs.
"""
import argparse
import json
import os
import statistics
import sys
import time

# About half a millisecond, longer than the host takes to queue a run.
LEAD_CYCLES = 1_000_000
# An idle GPU needs time to raise its clocks.
WARM_SECONDS = 0.2


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--tiny", action="store_true", help="small sizes, to test the script")
    parser.add_argument("--repeats", type=int, default=20, help="timed runs per figure")
    parser.add_argument("--budget", type=float, default=60, help="time limit in seconds")
    parser.add_argument("--json", help="file for the figures, rewritten after each")
    return parser.parse_args()


def write(path, value):
    """Replaces the file atomically: a reader sees the old or the new contents."""
    if path:
        with open(path + ".new", "w") as file:
            json.dump(value, file, indent=1)
        os.replace(path + ".new", path)


def median_ms(torch, device, run, repeats, until):
    """Median time of the runs that end before `until`; at least one run."""
    for _ in range(3):
        run()
    if device == "cuda":
        warm = time.time() + WARM_SECONDS
        while time.time() < warm:
            run()
            torch.cuda.synchronize()
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
        if time.time() > until:
            break
    return statistics.median(times)


def product(torch, args, n, dtype, until):
    """TFLOP/s and milliseconds of a GEMM of two square matrices."""
    a, b = (torch.randn(n, n, device=args.device).to(dtype) for _ in range(2))
    out = torch.empty(n, n, device=args.device, dtype=dtype)
    ms = median_ms(torch, args.device, lambda: torch.mm(a, b, out=out), args.repeats, until)
    return 2 * n**3 / ms / 1e9, ms


def copy(torch, args, count, until):
    """GB/s and milliseconds of a copy; bytes count twice, as read and as written."""
    source = torch.randint(0, 255, (count,), dtype=torch.uint8, device=args.device)
    target = torch.empty_like(source)
    ms = median_ms(torch, args.device, lambda: target.copy_(source), args.repeats, until)
    return 2 * count / ms / 1e6, ms


def main():
    args = parse()
    try:
        import torch
    except ImportError:
        print("SKIPPED: no PyTorch")
        return 0
    # The budget starts here: importing PyTorch may take longer than all measurements.
    until = time.time() + args.budget
    if args.device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU")
        return 0
    name = torch.cuda.get_device_name(0) if args.device == "cuda" else "cpu"
    value = {"kind": "figures", "product": f"PyTorch {torch.__version__}", "on": name, "figures": []}

    def add(what, unit, key, figure):
        rate, ms = figure
        value["figures"].append({"what": what, "value": rate, "unit": unit, "p50_ms": ms})
        if key:
            value[key] = rate
        print(f"{what}: {rate:.1f} {unit}, {ms:.3f} ms", flush=True)
        write(args.json, value)

    # CPUs have no fast fp16 GEMM.
    half = torch.float16 if args.device == "cuda" else torch.float32
    word = "fp16" if args.device == "cuda" else "fp32"
    sizes = [64] if args.tiny else [8192, 4096]
    for n in sizes:
        key = "fp16_tflops" if n == sizes[0] else None
        what = f"product of {n} x {n} x {n} in {word}"
        add(what, "TFLOP/s", key, product(torch, args, n, half, until))
    counts = [1 << 20] if args.tiny else [4_000_000_000, 256 << 20]
    for count in counts:
        key = "copy_gb_per_s" if count == counts[0] else None
        what = f"copy of {count / 1e9:.3g} GB"
        add(what, "GB/s", key, copy(torch, args, count, until))
    print(f"figure: {value['fp16_tflops']:.1f} TFLOP/s in {word}, copy {value['copy_gb_per_s']:.0f} "
          f"GB/s (read and written), {value['product']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
