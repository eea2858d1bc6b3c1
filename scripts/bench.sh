#!/usr/bin/env bash
# What memshim costs: instructions (callgrind) and time, without it, with it, and with it but no
# trace. Medians of several runs; ratios travel between machines, nanoseconds do not.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

RUNS=7

usage() {
    cat <<'USAGE'
Usage: scripts/bench.sh [--runs N] [--no-instructions]

Measures on the simulated GPU, whose driver costs next to nothing: the differences are memshim's.
MEMSHIM_BUILD names another build folder than build.
USAGE
}

# world without|traced|untraced COMMAND...: runs it in that world.
world() {
    # A small device: callgrind has few addresses.
    local kind=$1 settings=(LD_LIBRARY_PATH="$MEMSHIM_BUILD/simgpu" MEMSHIM_LOG=off
        MEMSHIM_OUTPUT="$OUTPUT" SIMGPU_MEMORY=128MiB SIMGPU_CONTEXT=4MiB)
    shift
    if [[ $kind != without ]]; then settings+=(LD_PRELOAD="$MEMSHIM_BUILD/libmemshim.so"); fi
    if [[ $kind == untraced ]]; then settings+=(MEMSHIM_TRACE=off); fi
    env "${settings[@]}" "$@"
}

# median_time KIND PROGRAM: nanoseconds each.
median_time() {
    local run
    for ((run = 0; run < RUNS; run++)); do
        world "$1" "$MEMSHIM_BUILD/tests/bench/$2"
        rm -rf "$OUTPUT"
    done | sort -n | sed -n "$(((RUNS + 1) / 2))p"
}

# The instructions of a run with this count, all of them.
instructions() {
    local log=$WORK/callgrind.log
    world "$1" valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "$MEMSHIM_BUILD/tests/bench/$2" "$3" >/dev/null 2>"$log" || {
        cat "$log" >&2
        die "callgrind could not run $2"
    }
    rm -rf "$OUTPUT"
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$log"
}

# Two counts, subtracted: start and end of the program drop out.
instructions_each() {
    local few=1000 many=21000 first second
    first=$(instructions "$1" "$2" "$few")
    second=$(instructions "$1" "$2" "$many")
    awk -v a="$first" -v b="$second" -v n=$((many - few)) 'BEGIN { printf "%.1f\n", (b - a) / n }'
}

print_row() {
    local what=$1 unit=$2 without=$3 traced=$4 untraced=$5
    awk -v what="$what" -v unit="$unit" -v a="$without" -v b="$traced" -v c="$untraced" 'BEGIN {
        printf "%-34s %-13s %9.1f %9.1f %9.1f %8.2f %8.2f\n", what, unit, a, b, c, b / a, c / a
    }'
}

measure() {
    local what=$1 program=$2
    print_row "$what" "ns" "$(median_time without "$program")" "$(median_time traced "$program")" \
        "$(median_time untraced "$program")"
    if [[ $INSTRUCTIONS == yes ]]; then
        print_row "$what" "instructions" "$(instructions_each without "$program")" \
            "$(instructions_each traced "$program")" "$(instructions_each untraced "$program")"
    fi
}

main() {
    INSTRUCTIONS=yes
    while [[ $# -gt 0 ]]; do
        case $1 in
        --runs)
            RUNS=${2:-}
            [[ $RUNS =~ ^[1-9][0-9]*$ ]] || die "--runs takes a number, not '$RUNS'"
            shift
            ;;
        --no-instructions) INSTRUCTIONS=no ;;
        -h | --help)
            usage
            return 0
            ;;
        *) die "bench.sh does not know '$1'; see scripts/bench.sh --help" ;;
        esac
        shift
    done
    setup_main --bench
    build_memshim "$MEMSHIM_BUILD" >/dev/null
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
    OUTPUT=$WORK/memshim-out
    printf '%-34s %-13s %9s %9s %9s %8s %8s\n' "one of" "in" without traced untraced \
        "traced x" "untrcd x"
    measure "alloc + free, warm pool" pairs
    measure "birth + death of a tensor" tensors
    measure "dlsym" lookups
}

main "$@"
