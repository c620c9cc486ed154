#!/usr/bin/env bash
# Starts onegraph under Open MPI 4.1, one rank per GPU, on this host or on several: any command
# after `--`, or `onegraph train`.
#
#   mpirun.sh [-n RANKS] [-H HOST:RANKS,HOST:RANKS..] -- COMMAND [ARGUMENTS]
#   mpirun.sh [-n RANKS] [-H HOST:RANKS,HOST:RANKS..] CONFIG [OPTIONS OF onegraph train]
#   mpirun.sh -n 8 mlperf_r50 --resume auto
#   mpirun.sh -H a:8,b:8 -- mlperf run mlperf_128 --out submission --org ORG --system NAME
#   ONEGRAPH_BIN=bench mpirun.sh -H a:8,b:8 -- --steps 500
#
# Without -H, hosts come from OMPI_MCA_orte_default_hostfile (set by Kubeflow), else this one;
# without -n there are as many ranks as slots, or GPUs of this host. Several hosts need ssh from
# here, and the program, config and data under the same paths. ONEGRAPH_BIN is the program. SIGTERM,
# SIGINT, SIGHUP and SIGUSR1 request the ranks to save and leave; a second one ends mpirun. The exit
# code is mpirun's: 6 saved and left, 8 a rank was lost, 128+N rank 0 was killed by signal N. See
# docs/many-processes.md for details.
#
# Tested with Open MPI 4.1.4, on CPUs: one host; two hosts that are network namespaces, over ssh.
# Not tested: GPUs, EFA.
set -euo pipefail

die() {
    printf 'mpirun.sh: %s\n' "$1" >&2
    exit 2
}

usage='usage: mpirun.sh [-n RANKS] [-H HOST:RANKS,..] CONFIG [OPTIONS], or .. -- COMMAND [ARGUMENTS]'
ranks='' hosts=()
while getopts n:H: option; do
    case $option in
    n) ranks=$OPTARG ;;
    H) IFS=, read -ra hosts <<<"$OPTARG" ;;
    *) die "$usage" ;;
    esac
done
# getopts removes `--`; it is the last word before the rest.
command=(train)
[[ ${*:OPTIND-1:1} != -- ]] || command=()
shift $((OPTIND - 1))
(($#)) || die "no config and no command; $usage"
program=$(command -v "${ONEGRAPH_BIN:-onegraph}") ||
    die "${ONEGRAPH_BIN:-onegraph}: not found; put onegraph on PATH, or its path in ONEGRAPH_BIN"
program=$(realpath "$program")
command -v mpirun >/dev/null || die 'mpirun: not found; install openmpi-bin'

options=()
hostfile=${OMPI_MCA_orte_default_hostfile:-}
if ((${#hosts[@]})); then
    options+=(--host "$(IFS=,; printf '%s' "${hosts[*]}")")
elif [[ -n $hostfile ]]; then
    [[ -r $hostfile ]] || die "$hostfile: cannot be read; OMPI_MCA_orte_default_hostfile names it"
    mapfile -t hosts < <(sed -n 's/^ *\([^ #]\+\).*slots=\([0-9]\+\).*/\1:\2/p' "$hostfile")
    ((${#hosts[@]})) || die "$hostfile: no line of the form 'HOST slots=N'"
fi
if [[ -z $ranks ]]; then
    for host in "${hosts[@]}"; do
        slots=${host##*:}
        [[ $host == *:* ]] || slots=1
        ranks=$((ranks + slots))
    done
    if [[ -z $ranks ]] && command -v nvidia-smi >/dev/null; then
        ranks=$(nvidia-smi --list-gpus | wc -l)
    fi
fi
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "${ranks:-no} ranks; say how many with -n"

# On one host the ranks find each other; across hosts rank 0 is on the first.
num_hosts=$((${#hosts[@]} > 1 ? ${#hosts[@]} : 1))
if ((num_hosts > 1)); then
    export MASTER_ADDR=${MASTER_ADDR:-${hosts[0]%%:*}} MASTER_PORT=${MASTER_PORT:-29500}
    if [[ -z ${ONEGRAPH_TOKEN:-}${ONEGRAPH_TOKEN_FILE:-} ]]; then
        ONEGRAPH_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
        export ONEGRAPH_TOKEN
    fi
    # mpirun probes a host after 5 s of silence, and gives it up after 5 s more. Its defaults (300 s
    # and 180 s) make it wait for minutes after all ranks have ended.
    export OMPI_MCA_oob_tcp_keepalive_time=${OMPI_MCA_oob_tcp_keepalive_time:-5}
    export OMPI_MCA_oob_tcp_keepalive_intvl=${OMPI_MCA_oob_tcp_keepalive_intvl:-1}
    export OMPI_MCA_oob_tcp_keepalive_probes=${OMPI_MCA_oob_tcp_keepalive_probes:-5}
fi
# The ranks of a host share its cores. Open MPI would bind each of two ranks to a single core.
threads=$(($(nproc) / ((ranks + num_hosts - 1) / num_hosts)))
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-$((threads > 0 ? threads : 1))}
# An Amazon EFA adapter (vendor 0x1d0f): NCCL's plugin uses it through libfabric.
if grep -qs 0x1d0f /sys/class/infiniband/*/device/vendor; then
    export FI_PROVIDER=${FI_PROVIDER:-efa}
fi
while read -r name; do
    case $name in
    MASTER_* | ONEGRAPH_* | NCCL_* | FI_* | RAYON_NUM_THREADS | CUDA_* | LD_LIBRARY_PATH)
        options+=(-x "$name")
        ;;
    esac
done < <(compgen -e)

# After a rank has failed, mpirun sends the others SIGTERM, and later SIGKILL, each after this many
# seconds (its default is 1): together more than the 10 in which survivors leave
# (ranks.timeout_seconds). mpirun neither ends nor prints a message before that.
options+=(--mca odls_base_sigkill_timeout "${OMPI_MCA_odls_base_sigkill_timeout:-6}")

# A separate session, so that Ctrl-C in a terminal reaches only this script.
setsid mpirun -np "$ranks" --bind-to none "${options[@]}" "$program" "${command[@]}" "$@" \
    </dev/null &
mpirun=$!
asked=''
leave() {
    if [[ -z $asked ]]; then
        printf 'mpirun.sh: asking the ranks to save and leave\n' >&2
        kill -USR1 "$mpirun" 2>/dev/null || true
    else
        kill -TERM "$mpirun" 2>/dev/null || true
    fi
    asked=yes interrupted=yes
}
trap leave TERM INT HUP USR1
# A trapped signal interrupts `wait`, whose status is only mpirun's if there was no signal.
while interrupted='' code=0; do
    wait "$mpirun" || code=$?
    [[ -n $interrupted ]] || exit "$code"
done
