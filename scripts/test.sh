#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'USAGE'
Usage: scripts/test.sh [--torch] [--sanitize address|thread] [--only PATTERN | --again]

  --torch     the tests that need PyTorch as well (installed into the project's venv)
  --sanitize  in a build of its own, with that sanitizer
  --only      only the ctest tests whose name matches this regular expression
  --again     only what failed in the last run in this build folder
MEMSHIM_BUILD names another build folder than build, MEMSHIM_VENV another venv than .venv.
The last line counts the cases; the exit status is 1 when one failed.
USAGE
}

run_ctest() {
    # Two at once: half of them wait for streams and for each other most of the time.
    local folder=$1 junit=$2
    shift 2
    ctest --test-dir "$folder" --parallel 2 --output-on-failure --output-junit "$junit" \
        --test-output-size-passed 1000000 --test-output-size-failed 10000000 "$@"
}

# The names of the test files, for the list of what was skipped.
torch_tests() {
    local file
    for file in "$MEMSHIM_ROOT"/tests/torch/test_*.py; do
        if [[ -e $file ]]; then printf '%s\n' "tests/torch/$(basename "$file")"; fi
    done
}

# run_torch_tests PYTHON LOG [NAME...]: those of that name (module.Class.test), or all.
run_torch_tests() {
    local python=$1 log=$2 folder=$MEMSHIM_ROOT/tests/torch status=0 what
    shift 2
    what=(-m unittest discover -v -s "$folder" -t "$folder")
    if [[ $# -gt 0 ]]; then
        what=(-c 'import sys, unittest; sys.path.insert(0, sys.argv.pop(1)); unittest.main(None)'
            "$folder" -v "$@")
    fi
    MEMSHIM_BUILD=$MEMSHIM_BUILD MEMSHIM_VENV=$(dirname "$(dirname "$python")") \
        "$python" "${what[@]}" 2>&1 | tee "$log" || status=$?
    return "$status"
}

# The names in unittest's own list of what failed.
failed_torch_tests() {
    if [[ -e $1 ]]; then
        sed -nE 's/^(FAIL|ERROR): [^ ]+ \(([A-Za-z0-9_.]+)\).*/\2/p' "$1" | sort -u
    fi
}

main() {
    local torch=no sanitize='' again=no python='' which=()
    while [[ $# -gt 0 ]]; do
        case $1 in
        --torch) torch=yes ;;
        --sanitize)
            sanitize=${2:-}
            shift
            ;;
        --only)
            which=(-R "${2:-}")
            shift
            ;;
        --again)
            again=yes
            which=(--rerun-failed)
            ;;
        -h | --help)
            usage
            return 0
            ;;
        *) die "test.sh does not know '$1'; see scripts/test.sh --help" ;;
        esac
        shift
    done
    case $sanitize in
    '') ;;
    address | thread) MEMSHIM_BUILD=$MEMSHIM_BUILD-$sanitize ;;
    *) die "--sanitize is address or thread, not '$sanitize'" ;;
    esac

    local tally=()
    part "install" setup_main
    if [[ $torch == yes ]]; then
        part "install PyTorch" install_torch || say "PyTorch could not be installed"
        python=$(find_torch_python || true)
    fi
    part "build" build_memshim "$MEMSHIM_BUILD" "-DMEMSHIM_SANITIZE=$sanitize"

    local junit=$MEMSHIM_BUILD/ctest.xml log=$MEMSHIM_BUILD/torch.log file names=()
    local failed=$MEMSHIM_BUILD/Testing/Temporary/LastTestsFailed.log
    if [[ $again == yes ]]; then
        [[ -s $junit ]] || die "--again: no tests were run in $MEMSHIM_BUILD before"
        mapfile -t names < <(failed_torch_tests "$log")
    else
        rm -f "$failed" "$log"
    fi
    if [[ $again == no || -s $failed ]]; then
        rm -f "$junit"
        part "ctest" run_ctest "$MEMSHIM_BUILD" "$junit" "${which[@]}" || true
        [[ -s $junit ]] || die "ctest left no result"
        tally+=(--ctest "$junit")
    fi
    if [[ $torch == yes && -n $(torch_tests) ]]; then
        # A run without its last line was cut off: all of it again.
        if [[ -n $python && $again == yes ]] && grep -qsE '^OK( |$)' "$log"; then
            say "none of PyTorch's tests had failed"
        elif [[ -n $python ]]; then
            part "tests/torch" run_torch_tests "$python" "$log" "${names[@]}" || true
            tally+=(--unittest "$log")
        else
            while read -r file; do
                tally+=(--skipped "$file=no PyTorch here")
            done < <(torch_tests)
        fi
    fi
    print_part_times
    python3 "$MEMSHIM_ROOT/tests/tally.py" "${tally[@]}"
}

main "$@"
