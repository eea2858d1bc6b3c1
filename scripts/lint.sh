#!/usr/bin/env bash
# Every check of style and of likely mistakes, over the whole tree: clang-format, clang-tidy, ruff,
# mypy, shellcheck. All are run; the exit status says whether one of them found something.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'USAGE'
Usage: scripts/lint.sh [--tidy changed|all|deep|none]

  --tidy changed   clang-tidy on the .c files that differ from the commit before (default: all)
  --tidy deep      on all, with the analyzer's own bound on its work in a function: three times as
                   long, for the paths through long functions that the usual bound leaves out
USAGE
}

tracked() { git -C "$MEMSHIM_ROOT" ls-files -z -- "$@"; }

check_format() { tracked '*.c' '*.h' | xargs -0r clang-format --dry-run -Werror; }

check_shell() {
    { tracked 'scripts/*.sh' 'tests/*.sh' .ci/run; } | sort -zu |
        xargs -0r shellcheck -x --source-path=SCRIPTDIR --source-path="$MEMSHIM_ROOT"
}

check_ruff() {
    tracked '*.py' | xargs -0r "$MEMSHIM_VENV/bin/ruff" check -q --no-cache
}

# Files apart from each other, so that equal names in different folders do not clash.
check_mypy() {
    tracked '*.py' |
        xargs -0r "$MEMSHIM_VENV/bin/mypy" --no-error-summary --scripts-are-modules \
            --explicit-package-bases --cache-dir "$MEMSHIM_BUILD/mypy-cache"
}

# The .c files that the build compiles; what it does not compile has no flags to be checked with.
tidy_files() {
    python3 - "$MEMSHIM_BUILD/compile_commands.json" "$MEMSHIM_ROOT" <<'PYTHON'
import json, pathlib, sys
root = pathlib.Path(sys.argv[2]).resolve()
for file in sorted({entry["file"] for entry in json.load(open(sys.argv[1]))}):
    path = pathlib.Path(file).resolve()
    if path.suffix == ".c" and root in path.parents and "/build" not in str(path):
        print(path.relative_to(root))
PYTHON
}

check_tidy() {
    local files
    files=$(tidy_files)
    if [[ $1 == changed ]]; then
        files=$(comm -12 <(sort <<<"$files") <(git diff --name-only HEAD~1 -- '*.c' | sort))
    fi
    [[ -n $files ]] || return 0
    local bound=()
    if [[ $1 != deep ]]; then
        # The analyzer's default is 225000.
        bound=(--extra-arg={-Xclang,-analyzer-config,-Xclang,max-nodes=60000})
    fi
    xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "$MEMSHIM_BUILD" "${bound[@]}" \
        <<<"$files" 2>/dev/null
}

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
    part "shellcheck" check_shell || failed+=(shellcheck)
    part "ruff" check_ruff || failed+=(ruff)
    part "mypy" check_mypy || failed+=(mypy)
    if [[ $tidy != none ]]; then
        [[ -f $MEMSHIM_BUILD/compile_commands.json ]] ||
            part "build" build_memshim "$MEMSHIM_BUILD" >/dev/null || die "clang-tidy needs a build"
        part "clang-tidy" check_tidy "$tidy" || failed+=(clang-tidy)
    fi
    print_part_times
    [[ ${#failed[@]} -eq 0 ]] || die "lint: ${failed[*]} found something (above)"
    say "lint: clean"
}

main "$@"
