#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a report: installs what is missing, builds, runs a training job under the shim,
# and shows where its report is. On the GPU where there is one, on the simulated GPU otherwise.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

TOO_SMALL=500MiB # for the C trainer: less than it needs beside a context

usage() {
    cat <<'USAGE'
Usage: scripts/quickstart.sh [--torch]

Runs a two-rank torchrun job where PyTorch can be imported, else a small trainer in C.
  --torch   installs PyTorch into the project's venv first
MEMSHIM_BUILD names another build folder than build, MEMSHIM_VENV another venv than .venv.
USAGE
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; }

run_torch_job() {
    local python=$1 gpus=2 job=() wrap=()
    # Two steps of accumulation and few sequences: minutes of a real job become seconds here.
    local workload=("$MEMSHIM_ROOT/tests/workloads/asv_transformer.py" --steps 20
        --token-limit 64 --accumulation 2 --layers 2)
    if has_gpu; then
        gpus=$(nvidia-smi -L | grep -c '^GPU')
        if [[ $gpus -gt 2 ]]; then gpus=2; fi
    else
        wrap=("$MEMSHIM_ROOT/scripts/simgpu.sh")
        export SIMGPU_DEVICES=2 SIMGPU_CONTENTS=${SIMGPU_CONTENTS:-none}
    fi
    job=("$MEMSHIM_BUILD/memshim" run --fraction 0.95 --output "$OUTPUT" --
        "$python" -m torch.distributed.run --nproc-per-node "$gpus" "${workload[@]}")
    say "running: ${wrap[*]} ${job[*]}"
    MEMSHIM_VENV=$(dirname "$(dirname "$python")") XDG_CACHE_HOME=$CACHE "${wrap[@]}" "${job[@]}"
}

# run_c_job OPTION...: of memshim run.
run_c_job() {
    local library_path=${LD_LIBRARY_PATH:-}
    local job=("$MEMSHIM_BUILD/memshim" run "$@" --output "$OUTPUT" --
        "$MEMSHIM_BUILD/tests/process/trainer")
    if ! has_gpu; then
        library_path=$MEMSHIM_BUILD/simgpu${library_path:+:$library_path}
    fi
    say "running: ${job[*]}"
    LD_LIBRARY_PATH=$library_path XDG_CACHE_HOME=$CACHE "${job[@]}"
}

# What memshim is for: a job that dies, and the lines that say why.
run_dying_job() {
    local report page
    ! run_c_job --limit "$TOO_SMALL" --spill off || die "the job did not run out of memory"
    page=$(echo "$OUTPUT"/latest/*/report.html)
    report=${page%.html}.txt
    grep -q '^OUT OF MEMORY' "$report" || die "there is no OUT OF MEMORY in $report"
    printf '\n'
    sed '/^$/,$d; s/^/    /' "$report"
    printf '\n'
    say "that is all that $report says first; the page: $page"
}

show_report() {
    local report found=no
    for report in "$OUTPUT"/latest/*/report.txt; do
        [[ -e $report ]] || continue
        found=yes
        printf '\n%s\n' "$report"
        head -n 12 "$report" | sed 's/^/    /'
    done
    [[ $found == yes ]] || die "the job left no report in $OUTPUT/latest"
    printf '\n'
    say "reports: $OUTPUT/latest (again at any time: $MEMSHIM_BUILD/memshim report)"
}

main() {
    local torch=no python=''
    while [[ $# -gt 0 ]]; do
        case $1 in
        --torch) torch=yes ;;
        -h | --help)
            usage
            return 0
            ;;
        *) die "quickstart.sh does not know '$1'; see scripts/quickstart.sh --help" ;;
        esac
        shift
    done
    part "install" setup_main
    if [[ $torch == yes ]]; then
        part "install PyTorch" install_torch || die "PyTorch could not be installed"
    fi
    part "build" build_memshim "$MEMSHIM_BUILD"
    OUTPUT=${MEMSHIM_OUTPUT:-$MEMSHIM_ROOT/memshim-out}
    # What this job finds out about the device is not left to later ones, nor taken from earlier ones.
    CACHE=$(mktemp -d)
    trap 'rm -rf "$CACHE"' EXIT
    if has_gpu; then
        say "running on $(nvidia-smi -L | head -n 1)"
    else
        say "no GPU here: running on the simulated one"
    fi
    if python=$(find_torch_python); then
        part "two-rank PyTorch job" run_torch_job "$python" || die "the job failed"
    else
        part "C trainer" run_c_job --fraction 0.95 || die "the job failed"
    fi
    show_report
    part "a job that dies" run_dying_job
    print_part_times
}

main "$@"
