#!/usr/bin/env bash
# Starts onegraph under Open MPI 4.1, one rank per GPU, on one or several hosts: any command after
# `--`, or `onegraph train`.
#
#   mpirun.sh [-n RANKS] [-H HOST:RANKS,HOST:RANKS..] -- COMMAND [ARGUMENTS]
#   mpirun.sh [-n RANKS] [-H HOST:RANKS,HOST:RANKS..] CONFIG [OPTIONS OF onegraph train]
#   mpirun.sh -n 8 mlperf_r50 --resume auto
#   mpirun.sh -H a:8,b:8 -- mlperf run mlperf_128 --out submission --org ORG --system NAME
#   ONEGRAPH_BIN=bench mpirun.sh -H a:8,b:8 -- --steps 500
#
# Without -H, hosts come from OMPI_MCA_orte_default_hostfile (set by Kubeflow); without this file
# only this host is used. Without -n the number of ranks is the number of slots, or of GPUs of this
# host. Several hosts need ssh from this host, and program, config and data under the same paths.
# ONEGRAPH_BIN is the program. On SIGTERM, SIGINT, SIGHUP or SIGUSR1 the ranks save and exit; a
# second signal stops mpirun. The exit code is mpirun's: 6 saved and exited, 8 a rank was lost,
# 128+N rank 0 was killed by signal N. See docs/many-processes.md for details.
#
# Tested with Open MPI 4.1.4, on CPUs: one host; two hosts (network namespaces) over ssh.
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
# getopts skips `--`, which is then the last word before the remaining arguments.
command=(train)
[[ ${*:OPTIND-1:1} != -- ]] || command=()
shift $((OPTIND - 1))
(($#)) || die "no config and no command; $usage"
program=$(command -v "${ONEGRAPH_BIN:-onegraph}") ||
    die "${ONEGRAPH_BIN:-onegraph}: not found; add onegraph to PATH, or set ONEGRAPH_BIN to its path"
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
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "${ranks:-no} ranks; set their number with -n"

# On one host ranks connect without an address; with several hosts rank 0 is on the first host.
num_hosts=$((${#hosts[@]} > 1 ? ${#hosts[@]} : 1))
if ((num_hosts > 1)); then
    export MASTER_ADDR=${MASTER_ADDR:-${hosts[0]%%:*}} MASTER_PORT=${MASTER_PORT:-29500}
    if [[ -z ${ONEGRAPH_TOKEN:-}${ONEGRAPH_TOKEN_FILE:-} ]]; then
        ONEGRAPH_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
        export ONEGRAPH_TOKEN
    fi
    # mpirun probes a host after 5 s without data, and gives up after 5 s more. With Open MPI's
    # defaults (300 s and 180 s), mpirun waits for minutes after all ranks have exited.
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

# After a rank has failed, mpirun sends SIGTERM to the remaining ranks after this many seconds
# (default 1), and SIGKILL after as many more: in total more than the 10 s in which these ranks exit
# by themselves (ranks.timeout_seconds). Until then mpirun neither exits nor prints a message.
options+=(--mca odls_base_sigkill_timeout "${OMPI_MCA_odls_base_sigkill_timeout:-6}")

# A separate session, so that Ctrl-C in a terminal reaches only this script.
setsid mpirun -np "$ranks" --bind-to none "${options[@]}" "$program" "${command[@]}" "$@" \
    </dev/null &
mpirun=$!
asked=''
leave() {
    if [[ -z $asked ]]; then
        printf 'mpirun.sh: requesting all ranks to save and exit\n' >&2
        kill -USR1 "$mpirun" 2>/dev/null || true
    else
        kill -TERM "$mpirun" 2>/dev/null || true
    fi
    asked=yes interrupted=yes
}
trap leave TERM INT HUP USR1
# A trapped signal interrupts `wait`; without a signal, the status of `wait` is mpirun's exit code.
while interrupted='' code=0; do
    wait "$mpirun" || code=$?
    [[ -n $interrupted ]] || exit "$code"
done
