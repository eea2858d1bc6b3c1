#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What memshim costs and what it saves, beside the allocators that it stands in for. Ratios travel
# between machines, nanoseconds do not. Nothing here fails because something is slow.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

RUNS=
SECTIONS=(cost hot replay scale sites workloads)

usage() {
    cat <<'USAGE'
Usage: scripts/bench.sh [--only SECTION]... [--quick] [--json FILE] [--runs N] [--no-instructions]

All on the simulated GPU, whose driver costs next to nothing. The sections, all where none is named:
  cost       a call's instructions (callgrind) and time, without memshim, with it, and with it but
             no trace
  hot        alloc + free pairs: memshim's pool, mimalloc, PyTorch's own allocator from C++, with
             expandable segments and without
  replay     the recorded runs of tests/traces through the pool: overhead ratio, calls, moves
  scale      threads x streams x devices, long traces, top and a merged report of many processes:
             time, memory, and how they grow
  sites      CPU time of a PyTorch step: alone, in both modes without stacks, by MEMSHIM_STACKS, and
             with PyTorch's own recording of stacks; host memory a distinct stack
  workloads  real PyTorch, memshim native and tensor mode, PyTorch native and expandable segments:
             overhead ratio, reserved over live, driver calls, chunk moves, CPU time a step (hours
             on a small machine; minutes with --quick)

  --quick            fewer runs, three workloads, a coarse search
  --json FILE        write everything there as well
  --runs N           of each timing; the median counts (cost 7, hot 3; quick: 1)
  --no-instructions  no callgrind
MEMSHIM_BUILD names another build folder than build, MEMSHIM_VENV another venv than .venv.
USAGE
}

# What an earlier run has found out about the device: no figure depends on it.
forget() { rm -rf "${XDG_CACHE_HOME:?}"; }

# world KIND COMMAND...: runs it without memshim, traced, or untraced.
world() {
    # A small device: callgrind has few addresses.
    local kind=$1 settings=(LD_LIBRARY_PATH="$MEMSHIM_BUILD/simgpu" MEMSHIM_LOG=off
        MEMSHIM_OUTPUT="$OUTPUT" SIMGPU_MEMORY=128MiB SIMGPU_CONTEXT=4MiB)
    shift
    if [[ $kind != without ]]; then settings+=(LD_PRELOAD="$MEMSHIM_BUILD/libmemshim.so"); fi
    if [[ $kind == untraced ]]; then settings+=(MEMSHIM_TRACE=off); fi
    forget
    env "${settings[@]}" "$@"
}

median() { sort -n | sed -n "$(((${1} + 1) / 2))p"; }

# --- cost ---

# median_time KIND PROGRAM: nanoseconds each.
median_time() {
    local run
    for ((run = 0; run < RUNS; run++)); do
        world "$1" "$MEMSHIM_BUILD/tests/bench/$2"
        rm -rf "$OUTPUT"
    done | median "$RUNS"
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
    # memshim's probe is a child, which callgrind counts too. The program's own count comes last.
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$log" | tail -n 1
}

# Two counts, subtracted: start and end of the program drop out.
instructions_each() {
    local few=1000 many=21000 first second
    first=$(instructions "$1" "$2" "$few")
    second=$(instructions "$1" "$2" "$many")
    awk -v a="$first" -v b="$second" -v n=$((many - few)) 'BEGIN { printf "%.1f\n", (b - a) / n }'
}

cost_row() {
    local what=$1 unit=$2 without=$3 traced=$4 untraced=$5
    awk -v what="$what" -v unit="$unit" -v a="$without" -v b="$traced" -v c="$untraced" 'BEGIN {
        printf "%-34s %-13s %9.1f %9.1f %9.1f %8.2f %8.2f\n", what, unit, a, b, c, b / a, c / a
    }'
    printf '{"what": "%s", "unit": "%s", "without": %s, "traced": %s, "untraced": %s}\n' \
        "$what" "$unit" "$without" "$traced" "$untraced" >>"$WORK/cost.jsonl"
}

measure_cost() {
    local what=$1 program=$2
    cost_row "$what" "ns" "$(median_time without "$program")" "$(median_time traced "$program")" \
        "$(median_time untraced "$program")"
    if [[ $INSTRUCTIONS == yes ]]; then
        cost_row "$what" "instructions" "$(instructions_each without "$program")" \
            "$(instructions_each traced "$program")" "$(instructions_each untraced "$program")"
    fi
}

section_cost() {
    printf '%-34s %-13s %9s %9s %9s %8s %8s\n' "one of" "in" without traced untraced \
        "traced x" "untrcd x"
    measure_cost "alloc + free, warm pool" pairs
    measure_cost "cudaMalloc + cudaFree, idle device" frees
    measure_cost "birth + death of a tensor" tensors
    measure_cost "dlsym" lookups
}

# --- hot ---

# Sets TORCH: PyTorch's package folder, empty where there is none.
find_torch_folder() {
    local python
    TORCH=
    if python=$(find_torch_python); then
        TORCH=$("$python" -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])')
    fi
}

# The program of a subject; what was not found when the build was configured has none.
program_of() {
    case $1 in
    memshim) printf '%s' "$MEMSHIM_BUILD/tests/bench/hotpath_driver" ;;
    expandable) printf '%s' "$MEMSHIM_BUILD/tests/bench/hotpath_torch" ;;
    *) printf '%s' "$MEMSHIM_BUILD/tests/bench/hotpath_$1" ;;
    esac
}

# subject NAME CASE: nanoseconds a pair; nothing where that subject was not built.
subject() {
    local program run settings=()
    program=$(program_of "$1")
    case $1 in
    memshim)
        settings=(LD_LIBRARY_PATH="$MEMSHIM_BUILD/simgpu" LD_PRELOAD="$MEMSHIM_BUILD/libmemshim.so"
            MEMSHIM_LOG=off MEMSHIM_STACKS=off MEMSHIM_OUTPUT="$OUTPUT")
        ;;
    torch) settings=(PYTORCH_ALLOC_CONF=expandable_segments:False) ;;
    expandable) settings=(PYTORCH_ALLOC_CONF=expandable_segments:True) ;;
    esac
    local command=("$program" "$2")
    if [[ $program == *_torch ]]; then
        command=("$MEMSHIM_ROOT/scripts/simgpu.sh" "${command[@]}")
    fi
    [[ -x $program ]] || return 0
    for ((run = 0; run < RUNS; run++)); do
        forget
        env SIMGPU_MEMORY=64GiB SIMGPU_CONTENTS=none MEMSHIM_BUILD="$MEMSHIM_BUILD" \
            "${settings[@]}" "${command[@]}" 2>"$WORK/subject.log" || {
            cat "$WORK/subject.log" >&2
            die "$1 could not run $2"
        }
        rm -rf "$OUTPUT"
    done | cut -d ' ' -f 2 | median "$RUNS"
}

section_hot() {
    local cases=(one_1 one_2 one_4 mixed_1 mixed_2 mixed_4 beside_1000 beside_1000000 among_1000
        among_1000000) subjects=(memshim mimalloc torch expandable) name each ns
    if [[ $QUICK == yes ]]; then cases=(one_1 mixed_1); fi
    for each in "${subjects[@]}"; do
        [[ -x $(program_of "$each") ]] ||
            say "$each was not built, its column is empty (scripts/setup.sh --torch --bench installs all)"
    done
    printf '%-34s' "nanoseconds a pair"
    printf ' %16s' "${subjects[@]}"
    printf '\n'
    for name in "${cases[@]}"; do
        printf '%-34s' "$name"
        for each in "${subjects[@]}"; do
            ns=$(subject "$each" "$name")
            printf ' %16s' "${ns:--}"
            printf '{"case": "%s", "subject": "%s", "ns": %s}\n' "$name" "$each" "${ns:-null}" \
                >>"$WORK/hot.jsonl"
        done
        printf '\n'
    done
}

# --- real PyTorch, and replay ---

# The interpreter for the scripts; they need no PyTorch themselves.
bench_python() {
    "$1" "$MEMSHIM_ROOT/tests/bench/$2.py" --json "$WORK/$3.json" "${@:4}"
}

section_replay() { bench_python python3 replays replay; }

section_scale() {
    local arguments=()
    if [[ $QUICK == yes ]]; then arguments+=(--quick); fi
    bench_python python3 scale scale "${arguments[@]}"
}

section_sites() {
    local python
    if ! python=$(find_torch_python); then
        say "no PyTorch here: call sites are left out (scripts/setup.sh --torch installs it)"
        return 0
    fi
    MEMSHIM_VENV=$(dirname "$(dirname "$python")") \
        bench_python "$python" sites sites --rounds "$RUNS"
}

section_workloads() {
    local python arguments=()
    if ! python=$(find_torch_python); then
        say "no PyTorch here: the workloads are left out (scripts/setup.sh --torch installs it)"
        return 0
    fi
    if [[ $QUICK == yes ]]; then arguments+=(--quick); fi
    MEMSHIM_VENV=$(dirname "$(dirname "$python")") \
        bench_python "$python" overhead workloads "${arguments[@]}"
}

# Everything that the sections left, as one object.
write_json() {
    python3 - "$WORK" "$1" <<'PYTHON'
import json, pathlib, sys
work, target = map(pathlib.Path, sys.argv[1:])
result = {path.stem: json.loads(path.read_text()) for path in work.glob("*.json")}
for path in work.glob("*.jsonl"):
    result[path.stem] = [json.loads(line) for line in path.read_text().splitlines()]
target.write_text(json.dumps(result, indent=1) + "\n")
PYTHON
}

is_section() { [[ " ${SECTIONS[*]} " == *" $1 "* ]]; }

main() {
    local json='' wanted=() section default_runs
    INSTRUCTIONS=yes
    QUICK=no
    while [[ $# -gt 0 ]]; do
        case $1 in
        --runs)
            RUNS=${2:-}
            [[ $RUNS =~ ^[1-9][0-9]*$ ]] || die "--runs takes a number, not '$RUNS'"
            shift
            ;;
        --only)
            is_section "${2:-}" || die "--only takes one of ${SECTIONS[*]}, not '${2:-}'"
            wanted+=("$2")
            shift
            ;;
        --json)
            json=${2:-}
            [[ -n $json ]] || die "--json takes a file"
            [[ -d $(dirname "$json") ]] || die "--json: there is no folder $(dirname "$json")"
            shift
            ;;
        --quick) QUICK=yes ;;
        --no-instructions) INSTRUCTIONS=no ;;
        -h | --help)
            usage
            return 0
            ;;
        *) die "bench.sh does not know '$1'; see scripts/bench.sh --help" ;;
        esac
        shift
    done
    export MEMSHIM_BUILD
    setup_main --bench
    find_torch_folder
    build_memshim "$MEMSHIM_BUILD" "-DMEMSHIM_TORCH=$TORCH" >/dev/null
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
    OUTPUT=$WORK/memshim-out
    export XDG_CACHE_HOME=$WORK/cache
    if [[ ${#wanted[@]} -eq 0 ]]; then wanted=("${SECTIONS[@]}"); fi
    default_runs=$RUNS
    for section in "${wanted[@]}"; do
        RUNS=$default_runs
        if [[ -z $RUNS ]]; then
            case $QUICK-$section in yes-*) RUNS=1 ;; no-cost) RUNS=7 ;; *) RUNS=3 ;; esac
        fi
        printf '\n%s\n' "== $section"
        "section_$section"
    done
    if [[ -n $json ]]; then write_json "$json"; fi
}

main "$@"
