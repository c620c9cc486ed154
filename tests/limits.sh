#!/usr/bin/env bash
# Inputs that once took minutes or all memory: each must be processed, at its original and at ten
# times its size, within 60 s of CPU time and 4 GiB. Prints seconds, peak MiB and PASS or FAIL, one
# line per input; exits 1 after a FAIL. At ten times the size, and for nested YAML, an error message
# also passes, but a crash does not.
#   tests/limits.sh target/release/onegraph [WORDS]     only inputs whose names contain WORDS
set -u
O=$(realpath "$1") ONLY=${2:-} W=$(mktemp -d) failed=0
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 1
export RAYON_NUM_THREADS=2
python3 - <<'X'
import json, os, struct, zlib


def png(path, w, h):
    def part(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc
    head = part(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0))
    data = part(b"IDAT", zlib.compress(b"\0" * (w + 1) * h))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + head + data + part(b"IEND", b""))


def coco(path, n, images=1, classes=1):
    def entry(k):
        at = k // images
        x, y, w, h = 5 * (at % 90), 4 * (at // 90 % 90), 4 + at // 8100, 4
        return dict(id=k + 1, image_id=k % images + 1, category_id=k % classes + 1, iscrowd=0,
                    bbox=[x, y, w, h], area=w * h, score=(k % 99 + 1) / 100,
                    segmentation=[[x, y, x + w, y, x + w, y + h, x, y + h]])
    names = [dict(id=c + 1, name="c%d" % c) for c in range(classes)]
    pictures = [dict(id=i + 1, file_name="%d.png" % (i + 1), width=500, height=400)
                for i in range(images)]
    objects = [entry(k) for k in range(n)]
    json.dump(dict(images=pictures, annotations=objects, categories=names), open(path, "w"))
    objects = [dict(o, segmentation=None) for o in objects]
    json.dump(objects, open("found-" + path, "w"))


os.mkdir("i")
for i in range(720):
    png("i/%d.png" % (i + 1), 500, 400)
for k in (1, 10):
    names = ", ".join('"%d"' % c for c in range(300000 * k))
    open("classes%d.toml" % k, "w").write('extends = "micro"\n[data]\nclasses = [%s]' % names)
    for folder in ("yaml%d/images" % k, "yaml%d/labels" % k, "circles%d" % k):
        os.makedirs(folder)
    png("yaml%d/images/1.png" % k, 8, 8)
    open("yaml%d/labels/1.txt" % k, "w").write("0 0.5 0.5 0.5 0.5")
    open("yaml%d/data.yaml" % k, "w").write("names: " + "[" * 100000 * k + "]" * 100000 * k)
    shapes = [dict(label="c", points=[[1500, 1500], [2990 - i % 900, 1500]], shape_type="circle",
                   group_id=None, flags={}) for i in range(500 * k)]
    png("circles%d/1.png" % k, 3000, 3000)
    json.dump(dict(version="5", flags={}, shapes=shapes, imagePath="1.png", imageData=None,
                   imageHeight=3000, imageWidth=3000), open("circles%d/1.json" % k, "w"))
    coco("categories%d.json" % k, 65536 * k, classes=65536 * k)
    coco("objects%d.json" % k, 100000 * k)
    coco("report%d.json" % k, 5000 * k)
    coco("compare%d.json" % k, 7200 * k, images=72 * k, classes=80)
X
wanted() { case $1 in *"$ONLY"*) ;; *) return 1 ;; esac }
run() { # name, command
    wanted "$1" || return
    local name=$1 word=PASS good='rc [0-9]{1,2}$'
    case $name in nested* | *x10) ;; *) good='rc 0$' ;; esac
    shift
    python3 - "$@" >out 2>&1 <<'X'
import resource as r, subprocess, sys
r.setrlimit(r.RLIMIT_AS, (4 << 30, 4 << 30))
r.setrlimit(r.RLIMIT_CPU, (60, 60))
rc = subprocess.run(sys.argv[1:], timeout=600, stdin=subprocess.DEVNULL).returncode
used = r.getrusage(r.RUSAGE_CHILDREN)
print("\n%.1f s %d MiB rc %d" % (used.ru_utime + used.ru_stime, used.ru_maxrss >> 10, rc))
X
    grep -qE "$good" out && ! grep -qE 'panicked|stack backtrace' out || word=FAIL failed=1
    printf '%-32s %-28s %s\n' "$name" "$(tail -n 1 out)" $word
    [ $word = PASS ] || tail -n 3 out | head -n 2 | cut -c1-150
}
T="--device cpu --set data.synthetic=none --set train.steps=2 --set solver.warmup_steps=0
    --set train.batch_size=1 --set train.images_per_group=1 --set train.run_dir=r
    --set model.detections.score_threshold=0"
prep() { "$O" prep --images i --annotations "$1.json" --out "st-$1" >/dev/null 2>&1; }
train() { echo "$T --set data.train_store=st-$1 --set data.val_store=st-$1 --set train.name=$1"; }
for k in 1 10; do
    run "classes in a config x$k" "$O" train classes$k.toml --print-config
    run "nested YAML x$k" "$O" prep yaml$k --out st-yaml$k
    run "circles x$k" "$O" prep circles$k --out st-circles$k
    for what in categories objects; do
        at=$what$k
        run "$what, prep x$k" "$O" prep --images i --annotations $at.json --out st-$at
        run "$what, eval x$k" "$O" eval --gt $at.json --detections found-$at.json
    done
    wanted "categories, train x$k" && prep categories$k
    run "categories, train x$k" "$O" train micro $(train categories$k)
    wanted "report x$k" && prep report$k
    run "report x$k" "$O" train micro $(train report$k) \
        --set model.detections.per_image=$((5000 * k))
    wanted "compare x$k" && prep compare$k && "$O" train micro $(train compare$k) >/dev/null 2>&1
    run "compare x$k" "$O" compare r/compare$k r/compare$k
done
exit $failed
