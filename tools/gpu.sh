#!/usr/bin/env bash
# Checks and measures onegraph on this machine's GPU: runs one stage after the other, each with a
# time limit, then prints a table. Exit code 1 if a stage failed. Does not change GPU settings.
#
#   tools/gpu.sh [--only STAGE,..] [--seconds N] [--out FOLDER] [--quick]
#   tools/gpu.sh pack [FOLDER]
#
# --only     run only these stages; bench-* selects several. All stages take about nine minutes
# --seconds  time limit for all stages, default 560: stages without enough time are SKIPPED
# --out      folder for log.txt, figures (JSON), clocks.csv; compressed to FOLDER.tar.gz at the end
# --quick    a small model and few steps, to test this script
# pack       copies programs, scripts and images to FOLDER (default target/gpu) and compresses it to
#            FOLDER.tar.xz, for a machine with neither Rust nor a compiler
set -euo pipefail
export LC_ALL=C RUST_BACKTRACE=0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build='cargo build --release -p engine -p bench -p tests --bin onegraph --bin bench --bin gpu-checks'

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

# Images are from the data set coco-open in the folder ONEGRAPH_DATA, by default shared/data
# next to the checkout; more baseline scripts are in ONEGRAPH_PEERS, by default shared/peers.
pack() {
    local root=${here%/*} out data peers program needs newest_glibc=GLIBC_2.34 most_mib=60 mib
    out=$(realpath -m "${1:-$root/target/gpu}")
    data=$(realpath -m "${ONEGRAPH_DATA:-$root/../shared/data}/coco-open")
    peers=$(realpath -m "${ONEGRAPH_PEERS:-$root/../shared/peers}")
    if [[ -e $out ]]; then
        [[ -f $out/COMMIT ]] || fail "$out exists and was not packed by this script"
        rm -r "$out"
    fi
    cd "$root"
    ONEGRAPH_COMMIT=$(git describe --always --dirty --tags 2>/dev/null || echo unknown)
    export ONEGRAPH_COMMIT
    $build
    mkdir -p "$out/bin" "$out/peers"
    for program in onegraph bench gpu-checks; do
        strip -o "$out/bin/$program" "${CARGO_TARGET_DIR:-target}/release/$program"
        needs=$(objdump -T "$out/bin/$program" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -n 1)
        [[ $(printf '%s\n' "$needs" $newest_glibc | sort -V | tail -n 1) == "$newest_glibc" ]] ||
            fail "$program needs $needs; build it where glibc is not newer than $newest_glibc"
    done
    cp tools/gpu.sh "$out/"
    cp tools/peers/*.py "$out/peers/"
    cp "$peers"/*.py "$out/peers/" || echo "SKIPPED: no scripts in $peers" >&2
    if [[ -d $data/train2017 ]]; then
        mkdir -p "$out/data"
        cp -r --no-preserve=mode "$data/train2017" "$data/annotations/instances_train2017.json" \
            "$data"/ATTRIBUTION.tsv "$out/data/"
    else
        echo "SKIPPED: no images in $data; the GPU checks will train on synthetic images" >&2
    fi
    echo "$ONEGRAPH_COMMIT" >"$out/COMMIT"
    tar -C "$(dirname "$out")" -cJf "$out.tar.xz" "$(basename "$out")"
    mib=$(($(du -k "$out.tar.xz" | cut -f 1) / 1024 + 1))
    ((mib <= most_mib)) || fail "$out.tar.xz is $mib MiB large; the maximum is $most_mib MiB"
    echo "$out.tar.xz: $mib MiB, commit $ONEGRAPH_COMMIT; unpack it on the GPU machine and run gpu.sh"
}

if [[ ${1:-} == pack ]]; then
    pack "${@:2}"
    exit
fi

only='' seconds=560 bin=$here/bin out=$here/out quick=''
[[ -d $bin ]] || bin=${CARGO_TARGET_DIR:-${here%/*}/target}/release out=${here%/*}/target/gpu-out
while (($#)); do
    case $1 in
        --only) only=${2?--only needs names} && shift ;;
        --seconds) seconds=${2?--seconds needs a number} && shift ;;
        --out) out=${2?--out needs a folder} && shift ;;
        --quick) quick=1 ;;
        *) fail "unknown option $1; the first lines of $0 list the options" ;;
    esac
    shift
done
out=$(realpath -m "$out")
PATH=$(realpath "$bin"):$PATH
for program in onegraph bench gpu-checks; do
    [[ -x $bin/$program ]] || fail "$bin has no $program; build it with \"$build\""
done
[[ ! -e $out || -f $out/log.txt ]] || fail "$out exists and was not written by this script"

rm -rf "$out" "$out.tar.gz"
mkdir -p "$out"
scratch=$(mktemp -d)

# Finds CUDA libraries and tools installed by pip, by the CUDA toolkit or in containers.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
while read -r folder; do
    [[ ! -d $folder ]] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done < <(python3 -c 'import glob, sys
for path in sys.path: print(*glob.glob(path + "/nvidia/*/lib"), sep="\n")'
    printf '%s\n' /usr/local/nvidia/lib*)
for folder in /usr/local/cuda*/bin /usr/local/cuda*/compute-sanitizer /opt/nvidia/nsight-compute/*; do
    [[ ! -d $folder ]] || PATH=$PATH:$folder
done
[[ -w ${HOME:-/nonexistent} ]] || export CUDA_CACHE_PATH=$scratch/cache
# Loading PyTorch takes half a minute if it is not in the page cache, so it is loaded here already.
timeout 90 python3 -c 'import torch, torchvision' </dev/null >/dev/null 2>&1 &

said=$scratch/said log=$out/log.txt table=$scratch/table
failed=0 child='' clocks='' end=$((SECONDS + seconds))
cd "$scratch"
finish() {
    [[ -z $child ]] || kill "$child" 2>/dev/null || true
    [[ -z $clocks ]] || kill "$clocks" 2>/dev/null || true
    tee -a "$log" <"$table"
    tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

# wanted STAGE: true if --only selects it.
wanted() {
    local part parts
    IFS=, read -ra parts <<<"$only"
    for part in "${parts[@]:-}"; do
        # shellcheck disable=SC2053
        [[ $1 != ${part:-*} ]] || return 0
    done
    return 1
}

# row STAGE RESULT CODE SECONDS WORDS: adds a row to the table.
row() {
    printf '%-18s %-8s %5s %8s  %s\n' "$1" "$2" "$3" "$4" "${5:0:160}" | tee -a "$table" >>"$log"
}

row stage result code seconds 'last line'

# Messages that mean that the machine does not support a stage, which is then SKIPPED.
refusal='several GPUs need, |No module named|Duplicate GPU|Device not supported|ERR_NVGPUCTRPERM'
# The table shows a stage's last line that matches this, or else its last line.
figure='images/s (over|while)|passed|figure: |^the graph [0-9]|bit-identical twice'

# stage NAME SECONDS COMMAND...: runs the command with a time limit, and adds its row.
stage() {
    local name=$1 limit=$2 left=$((end - SECONDS)) begin=${EPOCHREALTIME/./} code=0 result=ok
    local words took
    shift 2
    wanted "$name" || return 0
    if ((left < 3)); then
        row "$name" SKIPPED - 0.0 "no time is left for it"
        return
    fi
    ((limit < left)) || limit=$left
    printf '%s ...\n' "$name" >&2
    printf '\n===== %s: %s\n' "$name" "$*" >>"$log"
    timeout -k 5 "$limit" "$@" >"$said" 2>&1 </dev/null &
    child=$!
    wait "$child" || code=$?
    child=''
    # Rented machines limit the size of returned files.
    tail -c 1000000 "$said" >>"$log"
    words=$(tail -n 1 "$said")
    if [[ $words == 'SKIPPED: '* ]] || { ((code)) && grep -qE "$refusal" "$said"; }; then
        result=SKIPPED words=$(grep -m 1 -E "$refusal|^SKIPPED: " "$said")
    elif ((code == 124 || code == 137)); then
        result=FAILED failed=1 words="stopped after $limit s; last line: $words"
    elif ((code)); then
        result=FAILED failed=1 words=$(grep -m 1 -E '^FAILED|error: ' "$said" || tail -n 1 "$said")
    else
        words=$(grep -E "$figure" "$said" | tail -n 1 || tail -n 1 "$said")
    fi
    took=$(((${EPOCHREALTIME/./} - begin) / 100000))
    row "$name" $result $code $((took / 10)).$((took % 10)) "$words"
}

# with TOOL STAGE...: runs the stage if the program or script exists.
with() {
    local tool=$1
    shift
    if command -v "$tool" >/dev/null || [[ -f $tool ]]; then
        stage "$@"
    elif wanted "$1"; then
        row "$1" SKIPPED - 0.0 "$tool was not found"
    fi
}

# twice ARGUMENTS...: trains twice, in separate processes; fails unless results are bit-identical.
twice() {
    local run sums=()
    cd "$(mktemp -d -p .)"
    for run in first second; do
        onegraph train "$@" --device cuda --set train.name="$run" --set eval.draw_images=0
        sums+=("$(grep -hE '"(model|state).safetensors"' runs/"$run"/checkpoints/*/checkpoint.json)")
    done
    [[ ${sums[0]} == "${sums[1]}" ]] || fail "two runs end with different weights: ${sums[*]}"
    echo "bit-identical twice: ${sums[0]//[$'\n' ]/}"
}
# counted FILE ARGUMENTS...: writes ncu's report of one step, with as many kernels as time allows.
counted() {
    local file=$1 kernels
    timeout -s INT -k 20 100 ncu --log-file "$file" --graph-profiling node --clock-control none \
        --cache-control none "${@:2}" || true
    kernels=$(grep -cE '^"[0-9]|, Context ' "$file") || { tail -n 2 "$file" && return 1; }
    echo "figure: $kernels kernels"
}
export -f counted fail twice
function=(bash -euo pipefail -c '"$@"' bash)

peak=avg.pct_of_peak_sustained_active
metrics=gpu__time_duration.sum,sm__pipe_tensor_cycles_active.$peak,sm__inst_executed_pipe_tensor.sum
metrics+=,smsp__issue_active.$peak,sm__warps_active.$peak,dram__bytes_read.sum,dram__bytes_write.sum
metrics+=,lts__t_bytes.sum,launch__registers_per_thread,launch__grid_size
metrics+=,launch__waves_per_multiprocessor
# Kernels whose first launch gets a detailed ncu report.
kernels='conv2d_f16_large|conv2d_grad_input_f16_large|conv2d_grad_weight_f16_large|stem_f16_small'
kernels+='|roi_align_f16x8|roi_align_grad_tiles_f16x8|nms_proposals_compare|relu_mask_f16|sum_f16'

# model BATCH HEIGHTxWIDTH: sets `model` to the arguments of bench for a step of this size.
model() {
    model=(--device cuda --preset torchvision_r50 --set "train.batch_size=$1" --padded "$2")
    [[ -z $quick ]] || model=(--device cuda --preset micro --set train.batch_size=2)
}
# bench_step BATCH HEIGHTxWIDTH: runs a stage that times steps of this size.
bench_step() {
    model "$1" "$2"
    stage "bench-$1x$2" 65 bench "${model[@]}" "${steps[@]}" --json "$out/bench-$1x$2.json"
}
# peer NAME SCRIPT ARGUMENTS...: runs a baseline script, which needs PyTorch.
peer() {
    with "$peers/$2" "$1" 75 python3 -u "$peers/$2" --device cuda --budget 50 \
        --json "$out/$1.json" "${@:3}"
}
peers=$here/peers
images=$here/data/train2017
learn=(quickstart) repeat=(quickstart --set train.steps=40) ranks=20
steps=(--steps 100 --seconds 30) most=() first=() few=() padded=() small=300000
if [[ -n $quick ]]; then
    learn=(micro --set train.steps=12) repeat=(micro --set train.steps=4) ranks=2
    steps=(--steps 3 --warmup 1) most=(--most 100000) first=(--only "first step against f32")
    few=(--filter relu_mask --repeats 2) padded=(--padded 64x64) small=3000
elif [[ -d $images ]]; then
    repeat=(overfit_coco8 --set train.steps=40 --set data.synthetic=none --set "data.ids=[]"
        --set "data.train_images=$images"
        --set "data.train_annotations=$here/data/instances_train2017.json")
fi

with nvidia-smi clocks 20 nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,ECC
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used \
        --format=csv -lms 200 >"$out/clocks.csv" 2>&1 &
    clocks=$!
fi
# Correctness: the machine, every kernel, whole steps, reproducibility, training to a score.
stage doctor 30 onegraph doctor
stage device 120 gpu-checks device --each 90
# With synchronous launches an error is attributed to the kernel that caused it.
stage ops 150 env CUDA_LAUNCH_BLOCKING=1 gpu-checks ops "${most[@]}"
stage step 90 gpu-checks step "${first[@]}"
stage repeat 60 "${function[@]}" twice "${repeat[@]}"
stage train 60 onegraph train "${learn[@]}" --device cuda
# Speed.
bench_step 12 800x1344
bench_step 12 800x1088
# Cost of several ranks: all-reduces of a single rank (no communication); two ranks on the GPU.
model 12 800x1344
against=()
[[ ! -f $out/bench-12x800x1344.json ]] || against=(--against "$out/bench-12x800x1344.json")
stage all-reduce 65 bench "${model[@]}" "${steps[@]}" --all-reduce --json "$out/all-reduce.json" \
    "${against[@]}"
stage sums 60 env NCCL_NVLS_ENABLE=0 NCCL_RUNTIME_CONNECT=0 gpu-checks sums
stage two-ranks 90 env NCCL_MULTI_RANK_GPU_ENABLE=1 "${function[@]}" twice micro --ranks 2 \
    --set train.steps=$ranks --set train.batch_size=4 --set train.images_per_group=2
# Step time by kernel.
peer ceilings ceilings.py
ceilings=()
[[ ! -f $out/ceilings.json ]] || ceilings=(--ceilings "$out/ceilings.json")
stage nodes 110 bench nodes "${model[@]}" --check skip --rows 200 --json "$out/nodes.json" \
    --timeline "$out/timeline.json" "${ceilings[@]}"
stage bench-ops 90 bench ops --device cuda --json "$out/bench-ops.json" "${few[@]}"
stage infer 65 bench infer "${model[@]}" --batch 1,8 --seconds 15 --json "$out/infer.json"
model 1 800x1344
stage nodes-check 100 bench nodes "${model[@]}" --check only --json "$out/nodes-check.json"
bench_step 4 800x1344
bench_step 24 800x1344
# Baselines on the same GPU.
model 12 800x1344
stage shapes 45 bench nodes "${model[@]}" "${padded[@]}" --shapes "$out/shapes.json"
peer convolutions convolutions.py --shapes "$out/shapes.json"
peer torchvision-eval torchvision_eval.py
peer torchvision-step torchvision_gpu_step.py --batch 12 --variants eager_amp,eager_amp_bn16
# Slow tools: memory errors and races in small op cases, hardware counters of one step.
for tool in memcheck racecheck; do
    with compute-sanitizer $tool 150 compute-sanitizer --tool $tool --error-exitcode 9 \
        gpu-checks ops --most $small --seconds 100 --each 600
done
one=("${model[@]}" --steps 1 --warmup 0)
with ncu ncu-nodes 130 "${function[@]}" counted "$out/ncu-nodes.csv" --csv --page raw \
    --print-units base --metrics "$metrics" --launch-count 540 bench "${one[@]}"
with ncu ncu-kernels 130 "${function[@]}" counted "$out/ncu-kernels.txt" \
    --set detailed --section SchedulerStats --section WarpStateStats --page details \
    --kernel-id "::regex:^($kernels)\$:1" bench "${one[@]}"
exit $failed
