#!/usr/bin/env bash
# Runs a command as ranks on two simulated hosts, which are network namespaces of this machine with
# separate addresses and host names and a virtual network cable. The ranks get torchrun's variables,
# without ssh and a launcher. With -m the command, which is mpirun or a script that starts mpirun,
# runs once on the first host and can start processes on the second.
#
#   two-hosts.sh [-r RANKS_PER_HOST] [-c SECONDS] COMMAND [ARGUMENTS]
#   two-hosts.sh onegraph train CONFIG
#   two-hosts.sh -m mpirun.sh -H 10.77.0.1:2,10.77.0.2:2 CONFIG
#   two-hosts.sh sh -c 'hostname; echo "rank $RANK of $WORLD_SIZE"'
#
# Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
# ONEGRAPH_TOKEN; its output lines are prefixed with [HOST RANK]. -c disconnects the network after
# this time: packets are lost without an error. SIGTERM and SIGINT are forwarded to the ranks as
# SIGUSR1. The exit code is the highest exit code of a rank. Namespaces and cable are removed when
# the script ends for any reason. Needs iproute2 and util-linux, as root or with user namespaces.
#
# Tested as root and as a user, on CPUs: a TCP server and client in Python; training with 2 ranks
# per host; timed runs with -m, Open MPI 4.1.4. Not tested: GPUs.
set -euo pipefail

usage='two-hosts.sh: usage: two-hosts.sh [-m] [-r RANKS_PER_HOST] [-c SECONDS] COMMAND'
# The script moves itself into a new network namespace, which is removed when the script ends.
if [[ ${TWO_HOSTS_PID:-} != "$$" ]]; then
    user=(--user --map-root-user)
    ((EUID)) || user=()
    export TWO_HOSTS_PID=$$
    exec unshare "${user[@]}" --net "$BASH" "${BASH_SOURCE[0]}" "$@"
fi

per_host=1 cut_after='' by_mpirun=''
while getopts +mr:c: option; do
    case $option in
    m) by_mpirun=yes ;;
    r) per_host=$OPTARG ;;
    c) cut_after=$OPTARG ;;
    *) printf '%s\n' "$usage" >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if ((!$#)) || ! [[ $per_host =~ ^[1-9][0-9]*$ && ${cut_after:-1} =~ ^[0-9.]+$ ]]; then
    printf '%s\n' "$usage" >&2
    exit 2
fi

scratch=$(mktemp -d)
holders=() ranks=() readers=()
# shellcheck disable=SC2329  # a trap calls it
clean() {
    [[ $BASHPID == "$$" ]] || return 0
    kill -KILL "${ranks[@]}" "${holders[@]}" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean EXIT

# held PID NAMESPACE: waits, at most 5 s, until the process has left the script's namespace.
held() {
    local tries
    for ((tries = 0; tries < 500; tries++)); do
        [[ $(readlink "/proc/$1/ns/$2") == "$(readlink "/proc/$$/ns/$2")" ]] || return 0
        sleep 0.01
    done
    printf 'two-hosts.sh: no %s namespace after 5 s\n' "$2" >&2
    return 1
}
# Kills each child process if this script is killed.
bound=(setpriv --pdeathsig KILL)
names=(host-a host-b)
ip link add cable-a type veth peer name cable-b
for host in 0 1; do
    "${bound[@]}" unshare --net --uts sleep infinity &
    disown
    holders+=($!)
    held $! net && held $! uts
    inside=(nsenter --target $! --net --uts)
    "${inside[@]}" hostname "${names[host]}"
    cable=cable-${names[host]#host-}
    ip link set "$cable" netns $!
    "${inside[@]}" ip address add "10.77.0.$((host + 1))/24" dev "$cable"
    "${inside[@]}" ip link set lo up
    "${inside[@]}" ip link set "$cable" up
done

token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export MASTER_ADDR=10.77.0.1 MASTER_PORT=${MASTER_PORT:-29500}
export ONEGRAPH_TOKEN=${ONEGRAPH_TOKEN:-$token}
if [[ -n $by_mpirun ]]; then
    # mpirun calls this agent instead of ssh, with a host's address and the words of a command.
    cat >"$scratch/agent" <<END
#!/bin/sh
[ "\$1" = 10.77.0.1 ] && host=${holders[0]} || host=${holders[1]}
shift
exec nsenter --target \$host --net --uts -- sh -c "\$*"
END
    chmod +x "$scratch/agent"
    OMPI_MCA_plm_rsh_agent=$scratch/agent "${bound[@]}" \
        nsenter --target "${holders[0]}" --net --uts -- "$@" </dev/null &
    ranks+=($!)
else
    export WORLD_SIZE=$((2 * per_host)) LOCAL_WORLD_SIZE=$per_host
fi
for ((rank = 0; rank < ${WORLD_SIZE:-0}; rank++)); do
    host=$((rank / per_host))
    mkfifo "$scratch/$rank"
    sed -u "s/^/[${names[host]} $rank] /" <"$scratch/$rank" &
    readers+=($!)
    RANK=$rank LOCAL_RANK=$((rank % per_host)) "${bound[@]}" \
        nsenter --target "${holders[host]}" --net --uts -- "$@" \
        </dev/null >"$scratch/$rank" 2>&1 &
    ranks+=($!)
done
if [[ -n $cut_after ]]; then
    # shellcheck disable=SC2016  # arguments of the inner shell
    "${bound[@]}" sh -c 'sleep "$1" && echo "two-hosts.sh: cable cut" >&2 && exec nsenter \
        --target "$2" --net ip link set cable-a down' cut "$cut_after" "${holders[0]}" &
    disown
    holders+=($!)
fi

# shellcheck disable=SC2329  # a trap calls it
leave() {
    kill -USR1 "${ranks[@]}" 2>/dev/null || true
    interrupted=yes
}
trap leave TERM INT HUP USR1
highest=0
for rank in "${!ranks[@]}"; do
    # A trapped signal interrupts `wait`; without a signal, its status is the rank's exit code.
    while interrupted='' code=0; do
        wait "${ranks[rank]}" || code=$?
        [[ -n $interrupted ]] || break
    done
    codes[rank]=$code
    highest=$((code > highest ? code : highest))
done
[[ -n $by_mpirun ]] || wait "${readers[@]}" || true
printf 'two-hosts.sh: exit codes of the ranks: %s\n' "${codes[*]}"
exit "$highest"
