#!/usr/bin/env bash
# Builds the image of configs/launch/Dockerfile without a registry, and tries what it holds: both of its
# images are made of Debian's packages, the toolchain is this machine's.
#
#   tests/interchange/image.sh FOLDER        some 10 GB and 20 minutes; as root
#
# Needs buildah, debootstrap and rustc. Nothing is left running; FOLDER keeps roots and images.
set -euo pipefail
folder=$(realpath -m "${1:?a folder for roots and images}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$folder"
run() { buildah --storage-driver vfs --root "$folder/images" --runroot "$folder/run" "$@"; }

# root NAME SUITE PACKAGES: makes an image of a distribution, with this machine's certificates.
root() {
    local name=$1 suite=$2 packages=$3 container
    [[ -d $folder/$name ]] || debootstrap --variant=minbase --include="$packages" "$suite" "$folder/$name"
    cp /usr/local/share/ca-certificates/*.crt "$folder/$name/usr/local/share/ca-certificates/" || true
    chroot "$folder/$name" update-ca-certificates
    if [[ $name == build ]]; then
        cp -a "$(rustc --print sysroot)"/{bin,lib} "$folder/$name/usr/local/"
    fi
    container=$(run from scratch)
    cp -a "$folder/$name/." "$(run mount "$container")/"
    run unmount "$container"
    run commit --quiet --rm "$container" "localhost/$name:1"
}

root build bullseye ca-certificates,gcc,libc6-dev
root run bookworm ca-certificates
run bud --isolation chroot --network host --pull=never --build-arg BUILD_IMAGE=localhost/build:1 \
    --build-arg RUN_IMAGE=localhost/run:1 -f configs/launch/Dockerfile -t onegraph \
    --build-arg ONEGRAPH_COMMIT="$(git describe --always --dirty)" .
run images

container=$(run from --pull=never localhost/onegraph)
inside() { run run --isolation chroot --network host "$container" -- sh -ec "cd /tmp; $1"; }
inside 'id -un; ldconfig -p | grep libnccl.so.2; onegraph doctor'
inside 'onegraph train quickstart --set train.steps=50; onegraph predict --run runs/quickstart \
    --out pictures runs/data/shapes/val-100x128-seed0/images'
inside 'mpirun.sh -n 2 micro --set train.images_per_group=1 --set train.steps=4'
inside 'onegraph serve --run runs/quickstart --port 8099 & sleep 5; kill $!; wait $!'
run rm "$container"
