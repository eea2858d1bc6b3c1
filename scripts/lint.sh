#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every check of style and of likely mistakes, over the whole tree: clang-format, clang-tidy, ruff,
# mypy, shellcheck, the order of the rooms, and the locks that functions need. All are run; the exit status says whether one of them found something.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'USAGE'
Usage: scripts/lint.sh [--tidy changed|all|deep|none]

  --tidy changed   clang-tidy on the .c files that differ from the commit before (default: all, less
                   those that were clean as they are now: scripts/clang_checks.py)
  --tidy deep      on all, the analyzer on tests too, with its own bound on its work in a function:
                   four times as long, for the paths that the usual bound leaves out
USAGE
}

tracked() { git -C "$MEMSHIM_ROOT" ls-files -z -- "$@"; }

check_format() { tracked '*.c' '*.h' | xargs -0r clang-format --dry-run -Werror; }

# Each source file says its licence at its top, for tools that look at files alone.
check_licence() {
    local missing
    missing=$(git -C "$MEMSHIM_ROOT" grep -L '^[/#]*[*]* *SPDX-License-Identifier: Apache-2.0' -- \
        '*.c' '*.h' '*.def' '*.cpp' '*.py' '*.sh' '*.js' '*.css' '*.cmake' '*CMakeLists.txt' \
        .ci/run || true)
    [[ -z $missing ]] || {
        printf 'no line SPDX-License-Identifier in %s\n' "${missing//$'\n'/ }"
        return 1
    }
}

# Each .c file then says what it is for.
check_openings() {
    local file missing=()
    while IFS= read -r -d '' file; do
        [[ $(sed -n 2p "$file") == '/*'* ]] || missing+=("$file")
    done < <(tracked '*.c')
    [[ ${#missing[@]} -eq 0 ]] || {
        printf 'no comment in the second line that says what the file is for: %s\n' "${missing[*]}"
        return 1
    }
}

check_shell() {
    { tracked 'scripts/*.sh' 'tests/*.sh' .ci/run; } | sort -zu |
        xargs -0r shellcheck -x --source-path=SCRIPTDIR --source-path="$MEMSHIM_ROOT"
}

check_ruff() {
    tracked '*.py' | xargs -0r "$MEMSHIM_VENV/bin/ruff" check -q --no-cache
}

# What the rooms include, and what they call as far as a build shows it.
check_rooms() {
    local build=()
    if [[ -f $MEMSHIM_BUILD/libms_allocator.a ]]; then
        build=(--build "$MEMSHIM_BUILD")
    fi
    "$MEMSHIM_VENV/bin/python" scripts/arrows.py "${build[@]}"
}

# Files apart from each other, so that equal names in different folders do not clash.
check_mypy() {
    tracked '*.py' |
        xargs -0r "$MEMSHIM_VENV/bin/mypy" --no-error-summary --scripts-are-modules \
            --explicit-package-bases --cache-dir "$MEMSHIM_BUILD/mypy-cache"
}

check_locks() { scripts/clang_checks.py --build "$MEMSHIM_BUILD" locks; }

check_tidy() { scripts/clang_checks.py --build "$MEMSHIM_BUILD" tidy "$1"; }

main() {
    local tidy=all failed=()
    while [[ $# -gt 0 ]]; do
        case $1 in
        --tidy)
            tidy=${2:-}
            shift
            ;;
        -h | --help)
            usage
            return 0
            ;;
        *) die "lint.sh does not know '$1'; see scripts/lint.sh --help" ;;
        esac
        shift
    done
    case $tidy in
    changed | all | deep | none) ;;
    *) die "--tidy is changed, all, deep or none, not '$tidy'" ;;
    esac
    install_lint_tools
    cd "$MEMSHIM_ROOT"
    part "clang-format" check_format || failed+=(clang-format)
    part "licence" check_licence || failed+=(licence)
    part "openings" check_openings || failed+=(openings)
    part "shellcheck" check_shell || failed+=(shellcheck)
    part "ruff" check_ruff || failed+=(ruff)
    part "mypy" check_mypy || failed+=(mypy)
    part "rooms" check_rooms || failed+=(rooms)
    [[ -f $MEMSHIM_BUILD/compile_commands.json ]] ||
        part "build" build_memshim "$MEMSHIM_BUILD" >/dev/null || die "locks and clang-tidy need a build"
    part "locks" check_locks || failed+=(locks)
    if [[ $tidy != none ]]; then
        part "clang-tidy" check_tidy "$tidy" || failed+=(clang-tidy)
    fi
    print_part_times
    [[ ${#failed[@]} -eq 0 ]] || die "lint: ${failed[*]} found something (above)"
    say "lint: clean"
}

main "$@"
