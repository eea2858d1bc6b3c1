#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs all tests.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'USAGE'
Usage: scripts/test.sh [--torch] [--frameworks [all]] [--all] [--sanitize address|thread] [--only PATTERN]
                       [--repeat N]

  --torch     the tests that need PyTorch as well (installed into the project's venv)
  --frameworks the tests with JAX as well (needs --torch once; 0.9 GB while they run);
              all: with TensorFlow, ONNX Runtime, Numba, DeepSpeed, bitsandbytes and
              torch_memory_saver, too, one after the other (6.3 GB at most while they run)
  --all       also what takes long and says little that the others do not; and then, unless
              --only is given, both sanitizers
  --sanitize  in a build of its own, with that sanitizer (address: undefined behaviour, too): unit
              tests (address alone), random tests (thread: of threads), torture jobs, and the
              process tests whose programs link the driver
  --only      only the ctest tests whose name matches this regular expression
  --repeat    each ctest test N times, or until it fails, while twice as many processes as there are
              cores compute: what fails only on a busy machine
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

run_torch_tests() {
    local python=$1 logs=$2
    env "MEMSHIM_BUILD=$MEMSHIM_BUILD" "MEMSHIM_VENV=$(dirname "$(dirname "$python")")" \
        "$python" "$MEMSHIM_ROOT/tests/torch/run_tests.py" "$logs"
}

# run_framework NAME LOGS: it is installed beside the build, and goes again. Adds to main's tally.
run_framework() {
    local name=$1 logs=$2 venv=$MEMSHIM_BUILD/venv-$1 status=0
    local folder=frameworks module=test_$1
    if [[ $name == trainers ]]; then folder=torch; fi
    rm -rf "$venv"
    if install_framework "$name" "$venv"; then
        env "MEMSHIM_BUILD=$MEMSHIM_BUILD" "MEMSHIM_VENV=$venv" MEMSHIM_TEST_ALL=1 \
            "$venv/bin/python" "$MEMSHIM_ROOT/tests/torch/run_tests.py" \
            --folder "$MEMSHIM_ROOT/tests/$folder" --only "$module" --name "with_$name" \
            "$logs" || status=1
    else
        tally+=(--skipped "tests/$folder/$module.py=$name could not be installed")
        status=1
    fi
    rm -rf "$venv"
    return "$status"
}

# run_frameworks LOGS NAME...
run_frameworks() {
    local logs=$1 status=0 name
    shift
    for name in "$@"; do
        part "tests with $name" run_framework "$name" "$logs" || status=1
    done
    return "$status"
}

# Both at the same time: each leaves a core idle now and then. What PyTorch's tests say comes last.
run_both() {
    local python=$1 logs=$2 junit=$3 status=0 said torch_tests
    shift 3
    said=$(mktemp)
    run_torch_tests "$python" "$logs" >"$said" 2>&1 &
    torch_tests=$!
    run_ctest "$MEMSHIM_BUILD" "$junit" "$@" || status=1
    wait "$torch_tests" || status=1
    cat "$said"
    rm -f "$said"
    return "$status"
}

# compete COUNT: so many processes that only compute, as long as this shell lives.
compete() {
    local i
    for ((i = 0; i < $1; i++)); do
        while kill -0 $$ 2>/dev/null; do :; done &
    done
}

# The names of the test files, for the list of what was skipped.
torch_tests() {
    local file
    for file in "$MEMSHIM_ROOT"/tests/torch/test_*.py; do
        if [[ -e $file ]]; then printf '%s\n' "tests/torch/$(basename "$file")"; fi
    done
}

main() {
    local torch=no all=no frameworks=() sanitize='' python='' which=() repeat=() status=0
    while [[ $# -gt 0 ]]; do
        case $1 in
        --torch) torch=yes ;;
        --frameworks)
            frameworks=(jax)
            if [[ ${2:-} == all ]]; then
                frameworks+=(tensorflow onnxruntime numba trainers saver)
                shift
            fi
            ;;
        --all)
            all=yes
            export MEMSHIM_TEST_ALL=1
            ;;
        --sanitize)
            sanitize=${2:-}
            shift
            ;;
        --only)
            which=(-R "${2:-}")
            shift
            ;;
        --repeat)
            [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--repeat takes how often, not '${2:-}'"
            repeat=(--repeat "until-fail:$2")
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

    # Criterion's sandbox does not start under the thread sanitizer, and where there is one thread it
    # has nothing to say. Whoever walks stacks reads what is none of its own, which the other takes
    # for an overflow.
    case $sanitize in
    thread) which+=(-E '^(allocator|report|shim|simgpu)\.|^fuzz\.(pool_([0-9]|faults)|reader)') ;;
    address) which+=(-E '^shim\.native$') ;;
    esac

    # Each is read by one sanitizer alone, and says why.
    export LSAN_OPTIONS=suppressions=$MEMSHIM_ROOT/tests/unit/leaks.supp
    export TSAN_OPTIONS=suppressions=$MEMSHIM_ROOT/tests/process/threads.supp

    local tally=()
    part "install" setup_main
    if [[ $torch == yes ]]; then
        part "install PyTorch" install_torch || say "PyTorch could not be installed"
        python=$(find_torch_python || true)
        # Jobs of tests/verdicts that lack theirs are skipped.
        if [[ $python == "$MEMSHIM_VENV/bin/python" ]]; then
            part "install loops" install_loops || say "the packages of some loops could not be installed"
        fi
    fi
    local fuzz_part=-UMEMSHIM_FUZZ_PART # as tests/fuzz has it
    if [[ $all == yes && -z $sanitize ]]; then fuzz_part=-DMEMSHIM_FUZZ_PART=1; fi
    part "build" build_memshim "$MEMSHIM_BUILD" "-DMEMSHIM_SANITIZE=$sanitize" "$fuzz_part"

    local junit=$MEMSHIM_BUILD/ctest.xml logs=$MEMSHIM_BUILD/torch-logs log file
    rm -rf "$junit" "$logs"
    if [[ ${#repeat[@]} -gt 0 ]]; then compete $((2 * $(nproc))); fi
    if [[ -n $python ]]; then
        part "ctest and tests/torch" \
            run_both "$python" "$logs" "$junit" "${which[@]}" "${repeat[@]}" || true
    else
        part "ctest" run_ctest "$MEMSHIM_BUILD" "$junit" "${which[@]}" "${repeat[@]}" || true
    fi
    [[ -s $junit ]] || die "ctest left no result"
    tally+=(--ctest "$junit")
    if [[ ${#frameworks[@]} -gt 0 ]]; then
        run_frameworks "$logs" "${frameworks[@]}" || true
    fi
    for log in "$logs"/*.log; do
        if [[ -e $log ]]; then tally+=(--unittest "$log"); fi
    done
    if [[ $torch == yes && -z $python ]]; then
        while read -r file; do
            tally+=(--skipped "$file=no PyTorch here")
        done < <(torch_tests)
    fi
    print_part_times
    python3 "$MEMSHIM_ROOT/tests/tally.py" "${tally[@]}" || status=1
    if [[ $all == yes && -z $sanitize && ${#which[@]} -eq 0 ]]; then
        for sanitize in thread address; do
            say "once more, with the $sanitize sanitizer"
            env -u MEMSHIM_TEST_ALL "$MEMSHIM_ROOT/scripts/test.sh" --sanitize "$sanitize" || status=1
        done
    fi
    return "$status"
}

main "$@"
