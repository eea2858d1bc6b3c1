#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures memshim on a real GPU: tests/gpu/README.md says what, and where results go.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
default_build="${MEMSHIM_BUILD:-$root/build}"

fail() {
    echo "gpu_check.sh: $1" >&2
    exit 2
}

usage() {
    cat <<'USAGE'
Usage: scripts/gpu_check.sh [--minutes M] [--out DIR] [--build DIR] [--only PART]...
                            [--keep DIR] [--torch-tests DIR] [--simulated]
       scripts/gpu_check.sh --make-build DIR [--build DIR]

  --minutes M       the whole may take (9); shared out among the parts
  --out DIR         for results.json, results.md and what goes with them (tests/gpu/<device>-<driver>)
  --build DIR       check this build; without it one is made here, in MEMSHIM_BUILD or build
  --python PYTHON   the interpreter whose PyTorch is used (.venv's, else python3); none: without
  --only PART       doctor, semantics, torch, speed, fragmentation, spill, costs, gate, probes,
                    others, workloads, dry or pytorch; may be repeated
  --torch-tests DIR the folder test/ of PyTorch's sources, whose tests of memory are run, too
  --keep DIR        work there and leave what jobs said and left, to look for why one failed
  --simulated       on the simulated GPU: shows that the check runs, says nothing about hardware
  --make-build DIR  puts into DIR what another machine needs of a build (made here, or the one named),
                    libraries included; to be named there by --build
MEMSHIM_LIMIT is the most device memory that a part uses at a time (44GiB). The exit status is 1 where
something failed, 2 where nothing could be checked.
USAGE
}

# Builds with what is installed; sets up nothing, and needs no network.
build_here() {
    local folder="$1"
    command -v cmake >/dev/null || fail "there is no cmake to build with; name a build by --build"
    (
        # shellcheck source=scripts/setup.sh
        source "$root/scripts/setup.sh"
        build_memshim "$folder"
    ) >&2 ||
        fail "memshim cannot be built here; make a build elsewhere (--make-build) and name it by --build"
}

# The libraries that memshim opens by name where they are there, and all that these stand on.
carried_libraries() {
    local name path
    for name in libunwind.so.8 libdw.so.1 libz.so.1; do
        path="$(ldconfig -p | sed -n "s|^\t$name .*x86-64.* => ||p" | head -n 1)"
        [ -n "$path" ] || continue
        printf '%s\n' "$path"
        ldd "$path" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p'
    done | grep -Ev '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | sort -u
}

make_build() {
    local folder="$1" built="$2" library program
    [ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || fail "$folder is not empty"
    mkdir -p "$folder/tests/gpu" "$folder/tests/process" "$folder/lib" "$folder/simgpu"
    cp "$built/memshim" "$built/libmemshim.so" "$folder"
    cp "$built"/simgpu/lib*.so* "$built/simgpu/launch" "$folder/simgpu"
    cp -r "$built/simgpu/doubles" "$folder/simgpu"
    for program in "$built"/tests/gpu/{gpu_*,libgpu_*.so} "$built"/tests/process/{driver,streams}_{linked,resolved}_job \
        "$built"/tests/process/runtime_{dynamic,dynamic12,static}_job \
        "$built"/tests/process/{life_job,parity_job,attributes_job,registration_job,trainer}; do
        cp "$program" "$folder/${program#"$built"/}"
    done
    while read -r library; do
        cp -L "$library" "$folder/lib/"
    done < <(carried_libraries)
    git -C "$root" rev-parse --short=12 HEAD >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"
    printf 'gpu_check.sh: %s holds %s; its programs need glibc %s or newer\n' "$folder" \
        "$(du -sh "$folder" | cut -f 1)" "$(newest_glibc "$folder")"
}

newest_glibc() {
    find "$1" -path "$1/lib" -prune -o -path "$1/simgpu" -prune -o -type f -print0 |
        xargs -0 objdump -T 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1 | cut -c 7-
}

arguments=()
build=""
made=""
while [ $# -gt 0 ]; do
    case "$1" in
    --make-build)
        made="${2:-}"
        [ -n "$made" ] || fail "--make-build takes a folder"
        shift
        ;;
    --build)
        build="${2:-}"
        [ -d "$build" ] || fail "--build: there is no folder '$build'"
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) arguments+=("$1") ;;
    esac
    shift
done
command -v python3 >/dev/null || fail "there is no python3"
if [ -z "$build" ]; then
    build="$default_build"
    build_here "$build"
fi
if [ -n "$made" ]; then
    make_build "$made" "$build"
    exit 0
fi
exec python3 -B "$root/tests/gpu/check.py" --build "$build" "${arguments[@]}"
