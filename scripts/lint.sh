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

  --tidy changed   clang-tidy on the .c files that differ from the commit before (default: all)
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

# The .c files that the build compiles; what it does not compile has no flags to be checked with. What
# it compiles twice (MEMSHIM_CHECKS) is checked once, as the tests run it: clang-tidy's analyzer
# mixes up the two. Leaves such a list of commands in the build folder's tidy/.
tidy_files() {
    python3 - "$MEMSHIM_BUILD" "$MEMSHIM_ROOT" <<'PYTHON'
import json, pathlib, sys
build, root = (pathlib.Path(name).resolve() for name in sys.argv[1:])
commands = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    path = pathlib.Path(entry["file"]).resolve()
    if path.suffix == ".c" and root in path.parents and "/build" not in str(path):
        commands[path] = entry
(build / "tidy").mkdir(exist_ok=True)
(build / "tidy" / "compile_commands.json").write_text(json.dumps(list(commands.values())))
for path in sorted(commands):
    print(path.relative_to(root))
PYTHON
}

# Each command that Clang needs to see one file of a room as the build does, NUL-terminated:
# only the flags that say what is compiled, since the build's compiler may be another one.
lock_commands() {
    python3 - "$MEMSHIM_BUILD" "$MEMSHIM_ROOT" <<'PYTHON'
import json, pathlib, shlex, sys
build, root = (pathlib.Path(name).resolve() for name in sys.argv[1:])
commands = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
    top = path.relative_to(root).parts[0] if root in path.parents else ""
    if path.suffix == ".c" and top in ("allocator", "report", "shim"):
        words = iter(shlex.split(entry["command"]))
        flags = []
        for word in words:
            if word in ("-include", "-isystem"):
                flags += [word, next(words)]
            elif word.startswith(("-D", "-I", "-std=")):
                flags.append(word)
        commands[path] = shlex.join(flags + [str(path.relative_to(root))])
for path in sorted(commands):
    print(commands[path], end="\0")
PYTHON
}

# What allocator/base/locks/lock_annotations.h says of each function and of what locks guard, against
# what the functions do.
check_locks() {
    # shellcheck disable=SC2016
    lock_commands | xargs -0r -n 1 -P "$(nproc)" bash -c \
        'eval "clang -fsyntax-only -Wthread-safety -Werror=thread-safety $1"' clang
}

# The files on standard input.
tidy() {
    xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "$MEMSHIM_BUILD/tidy" "$@" 2>/dev/null
}

check_tidy() {
    local files
    files=$(tidy_files)
    if [[ $1 == changed ]]; then
        files=$(comm -12 <(sort <<<"$files") <(git diff --name-only HEAD~1 -- '*.c' | sort))
    fi
    [[ -n $files ]] || return 0
    # The analyzer takes four fifths of the time, and half of that for tests: these run under a
    # sanitizer as well, and the analyzer sees them with --tidy deep, or where they have changed.
    local bound=() tests=()
    if [[ $1 != deep ]]; then
        # The analyzer's default is 225000.
        bound=(--extra-arg={-Xclang,-analyzer-config,-Xclang,max-nodes=60000})
    fi
    if [[ $1 == all ]]; then
        tests=(--checks=-clang-analyzer-*)
    fi
    local status=0
    sed '/^tests\//d' <<<"$files" | tidy "${bound[@]}" || status=1
    sed '/^tests\//!d' <<<"$files" | tidy "${bound[@]}" "${tests[@]}" || status=1
    return "$status"
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
