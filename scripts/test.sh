#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'USAGE'
Usage: scripts/test.sh [--torch] [--sanitize address|thread] [--only PATTERN]

  --torch     the tests that need PyTorch as well (installed into the project's venv)
  --sanitize  in a build of its own, with that sanitizer
  --only      only the ctest tests whose name matches this regular expression
MEMSHIM_BUILD names another build folder than build, MEMSHIM_VENV another venv than .venv.
The last line counts the cases; the exit status is 1 when one failed.
USAGE
}

run_ctest() {
    # Two at once: half of them wait for streams and for each other most of the time.
    local arguments=(--test-dir "$1" --parallel 2 --output-on-failure --output-junit "$2"
        --test-output-size-passed 1000000 --test-output-size-failed 10000000)
    if [[ -n $3 ]]; then arguments+=(-R "$3"); fi
    ctest "${arguments[@]}"
}

# The names of the test files, for the list of what was skipped.
torch_tests() {
    local file
    for file in "$MEMSHIM_ROOT"/tests/torch/test_*.py; do
        if [[ -e $file ]]; then printf '%s\n' "tests/torch/$(basename "$file")"; fi
    done
}

run_torch_tests() {
    local python=$1 log=$2 status=0
    MEMSHIM_BUILD=$MEMSHIM_BUILD MEMSHIM_VENV=$(dirname "$(dirname "$python")") \
        "$python" -m unittest discover -v -s "$MEMSHIM_ROOT/tests/torch" -t "$MEMSHIM_ROOT/tests/torch" \
        2>&1 | tee "$log" || status=$?
    return "$status"
}

main() {
    local torch=no sanitize='' only='' python=''
    while [[ $# -gt 0 ]]; do
        case $1 in
        --torch) torch=yes ;;
        --sanitize)
            sanitize=${2:-}
            shift
            ;;
        --only)
            only=${2:-}
            shift
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

    local junit=$MEMSHIM_BUILD/ctest.xml log=$MEMSHIM_BUILD/torch.log file
    rm -f "$junit" "$log"
    part "ctest" run_ctest "$MEMSHIM_BUILD" "$junit" "$only" || true
    [[ -s $junit ]] || die "ctest left no result"
    tally+=(--ctest "$junit")
    if [[ $torch == yes && -n $(torch_tests) ]]; then
        if [[ -n $python ]]; then
            part "tests/torch" run_torch_tests "$python" "$log" || true
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
