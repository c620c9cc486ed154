"""Sends the same requests, in turn, to `onegraph serve` and to a plain Python server with torchvision's model.

    python3 tools/peers/torchvision_serve.py target/release/onegraph IMAGES [--threads N] [--clients N]

Needs torch, torchvision and pycocotools. Both serve maskrcnn_resnet50_fpn with the same random weights, whose class
scores are scaled so that detections exceed the threshold; both respond with boxes, scores and masks as COCO RLE. IMAGES
is a folder with JPEGs, of which the first 8 are used. Prints requests/s, p50 and p99 latency of each round, and the
ratio of the median requests/s.
"""

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy
import torch
import torchvision
from PIL import Image
from pycocotools import mask as coco

IMAGES, ROUNDS, SCALE = 8, 5, 15
# Indices of the classifier's 91 rows that are not COCO categories; `serve` ignores their objects.
NO_CATEGORY = [12, 26, 29, 30, 45, 66, 68, 69, 71, 83]


def drawn():
    """The model with random weights, scaled to give about as many detections as a trained model."""
    torch.manual_seed(0)
    model = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    with torch.no_grad():
        scores = model.roi_heads.box_predictor.cls_score
        scores.weight.mul_(SCALE)
        scores.bias[NO_CATEGORY] = -1e3
    return model.eval()


class Plain(BaseHTTPRequestHandler):
    """Responds to an image with COCO results; one image at a time runs, on all threads."""

    protocol_version = "HTTP/1.1"
    model, lock = None, threading.Lock()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        pixels = numpy.asarray(Image.open(io.BytesIO(body)).convert("RGB"))
        image = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float() / 255
        with self.lock, torch.inference_mode():
            found = self.model([image])[0]
        masks = (found["masks"][:, 0] > 0.5).numpy().astype(numpy.uint8)
        results = []
        for box, score, label, mask in zip(found["boxes"], found["scores"], found["labels"], masks):
            run = coco.encode(numpy.asfortranarray(mask))
            run["counts"] = run["counts"].decode()
            x1, y1, x2, y2 = box.tolist()
            bbox = [x1, y1, x2 - x1, y2 - y1]
            results.append({"category_id": int(label), "bbox": bbox, "score": float(score), "segmentation": run})
        answer = json.dumps(results).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def load(port, bodies, clients):
    """Seconds of each request, total seconds, and number of detections."""

    def ask(body):
        since = time.perf_counter()
        address = f"http://127.0.0.1:{port}/invocations"
        request = urllib.request.Request(address, data=body, headers={"Content-Type": "image/jpeg"})
        with urllib.request.urlopen(request) as answer:
            found = len(json.load(answer))
        return time.perf_counter() - since, found

    since = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        asked = list(pool.map(ask, bodies))
    return [seconds for seconds, _ in asked], time.perf_counter() - since, sum(found for _, found in asked)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    bodies = [path.read_bytes() for path in sorted(given.images.glob("*.jpg"))[:IMAGES]]
    Plain.model = drawn()
    plain = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "drawn.pth"
        torch.save(Plain.model.state_dict(), weights)
        command = [given.program.resolve(), "serve", "--weights", weights, "--config", "torchvision_r50"]
        command += ["--port", "0", "--device", "cpu"]
        environment = {"RAYON_NUM_THREADS": str(given.threads), "PATH": "/usr/bin:/bin"}
        ours = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        line = next((line for line in ours.stderr if "listening on http://" in line), None)
        if line is None:
            sys.exit("onegraph serve ended")
        threading.Thread(target=ours.stderr.read, daemon=True).start()
        ports = {"onegraph": int(line.split("127.0.0.1:")[1].split(":")[0]), "torchvision": plain.server_port}
        rates = {name: [] for name in ports}
        for port in ports.values():
            load(port, bodies[:2], 1)
        for number in range(ROUNDS):
            for name, port in ports.items():
                seconds, whole, found = load(port, bodies, given.clients)
                rates[name].append(len(bodies) / whole)
                p50, p99 = numpy.percentile(seconds, [50, 99])
                print(f"{number + 1} {name:12} {rates[name][-1]:6.3f} requests/s  p50 {p50:6.3f} s  p99 {p99:6.3f} s  {found} objects")
        ours.terminate()
        ours.wait()
    ratio = statistics.median(rates["onegraph"]) / statistics.median(rates["torchvision"])
    print(f"torch {torch.__version__}, {given.threads} threads, {given.clients} clients: {ratio:.2f} times torchvision's requests/s")


main()
