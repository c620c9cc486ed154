#!/usr/bin/env bash
# Downloads COCO 2017 and the initial ResNet-50 of MLPerf's Mask R-CNN, and prepares stores.
#
#   fetch-coco.sh DIR [--mirror URL] [--sums FILE] [--no-prep]
#
# DIR gets train2017.zip, val2017.zip, annotations_trainval2017.zip and R-50.pkl (20 GB), the
# unpacked files (20 GB), and train.store and val.store (20 GB). A file gets its final name only
# after its MD5 is verified; an interrupted download is continued by the next call. --mirror is a
# URL that has all files in one directory, including R-50.pkl.md5sum, and replaces the original
# hosts; --sums is a file in md5sum's format that replaces the sums below; --no-prep does not create
# stores. ONEGRAPH_BIN is the program. Needs curl, unzip and md5sum.
#
# Tested against a local server with small files (tests/tests/fetch_script.rs), not against the
# original hosts.
set -euo pipefail

die() {
    printf 'fetch-coco.sh: %s\n' "$1" >&2
    exit 1
}

coco=http://images.cocodataset.org
files=(
    "annotations_trainval2017.zip $coco/annotations"
    "val2017.zip $coco/zips"
    "train2017.zip $coco/zips"
    "R-50.pkl https://dl.fbaipublicfiles.com/detectron/ImageNetPretrained/MSRA"
)
# MD5s of COCO's files, as published by users of COCO. R-50.pkl.md5sum, on the same host as
# R-50.pkl, has the MD5 of the weights, which detects truncated and damaged files.
sums='f4bbac642086de4f52a3fdda2de5fa2c  annotations_trainval2017.zip
442b8da7639aecaf257c1dceb8ba8c80  val2017.zip
cced6f7f71b7629ddf16f17bbcfab6b2  train2017.zip'

readonly TRIES=5 # download attempts per file; each continues where the previous attempt ended

usage='usage: fetch-coco.sh DIR [--mirror URL] [--sums FILE] [--no-prep]'
dir='' mirror='' prep=yes
while (($#)); do
    case $1 in
    --mirror | --sums)
        (($# > 1)) || die "$1 has no value; $usage"
        if [[ $1 == --mirror ]]; then
            mirror=$2
        else
            sums=$(cat -- "$2") || die "$2: cannot be read; --sums names it"
        fi
        shift
        ;;
    --no-prep) prep='' ;;
    -*) die "unknown option $1; $usage" ;;
    *)
        [[ -z $dir ]] || die "two folders; $usage"
        dir=$1
        ;;
    esac
    shift
done
[[ -n $dir ]] || die "$usage"
for tool in curl unzip md5sum; do
    command -v "$tool" >/dev/null || die "$tool: not found; install it"
done
if [[ $prep ]]; then
    program=${ONEGRAPH_BIN:-onegraph}
    program=$(command -v "$program") ||
        die "$program: not found; add onegraph to PATH, or set ONEGRAPH_BIN to its path"
    program=$(realpath "$program")
fi
mkdir -p -- "$dir"
cd -- "$dir"

# sum_of NAME URL: the MD5 of the file, from the list or published next to it.
sum_of() {
    local sum
    sum=$(awk -v name="$1" '$2 == name || $2 == "*" name { print $1 }' <<<"$sums")
    if [[ -z $sum ]]; then
        sum=$(curl --fail --location --silent --show-error --retry "$TRIES" -- "$2.md5sum") ||
            die "$2.md5sum: download failed; run this again, or pass the MD5 of $1 with --sums"
        sum=${sum%%[[:space:]]*}
    fi
    [[ $sum =~ ^[0-9a-f]{32}$ ]] || die "\`$sum\` is not an MD5 of $1; pass the MD5 with --sums"
    printf '%s' "$sum"
}

# is_right FILE SUM
is_right() {
    [[ $(md5sum <"$1") == "$2 "* ]]
}

# fetch NAME FOLDER_URL
fetch() {
    local name=$1 url=${mirror:-$2}/$1 sum
    [[ ! -e $name ]] || return 0
    sum=$(sum_of "$name" "$url")
    if [[ ! -s $name.part ]] || ! is_right "$name.part" "$sum"; then
        printf 'fetching %s\n' "$url"
        for ((try = 1; ; try++)); do
            curl --fail --location --silent --show-error --continue-at - \
                --output "$name.part" -- "$url" && break
            ((try < TRIES)) || die "$url: not fetched whole in $TRIES tries; run this again"
            sleep 1
        done
        is_right "$name.part" "$sum" || {
            rm -- "$name.part"
            die "$url: its MD5 is not the published one, so the file was removed; run this again"
        }
    fi
    mv -- "$name.part" "$name"
}

# unpack ZIP FOLDER: the folder is created atomically.
unpack() {
    [[ ! -d $2 ]] || return 0
    printf 'unpacking %s\n' "$1"
    rm -rf -- "$2.part"
    unzip -q "$1" -d "$2.part" || die "$dir/$1: cannot be unpacked; is the disk full?"
    [[ -d $2.part/$2 ]] || die "$dir/$1: contains no folder $2"
    mv -- "$2.part/$2" "$2"
    rm -rf -- "$2.part"
}

for file in "${files[@]}"; do
    # shellcheck disable=SC2086 # name and folder
    fetch $file
done
unpack annotations_trainval2017.zip annotations
unpack val2017.zip val2017
unpack train2017.zip train2017
if [[ $prep ]]; then
    for set in val train; do
        [[ ! -d $set.store ]] || continue
        "$program" prep --images "${set}2017" \
            --annotations "annotations/instances_${set}2017.json" --out "$set.store"
    done
    printf 'ready: --init %q --set data.train_store=%q --set data.val_store=%q\n' \
        "$PWD/R-50.pkl" "$PWD/train.store" "$PWD/val.store"
fi
