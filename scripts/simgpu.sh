#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command on the simulated GPU: scripts/simgpu.sh CMD...
#
# Settings: SIMGPU_* (tests/simgpu/simgpu.h), MEMSHIM_BUILD (the build folder, default build/),
# MEMSHIM_VENV (a venv with PyTorch; else the active one, else .venv, else python3 on the PATH).
set -euo pipefail

# The tools that this script runs are no part of the job.
preload="${LD_PRELOAD:-}"
unset LD_PRELOAD

fail() {
    echo "simgpu.sh: $1" >&2
    exit 2
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="${MEMSHIM_BUILD:-$root/build}"
[ $# -gt 0 ] || fail "usage: scripts/simgpu.sh CMD..."
build="$(cd "$build" 2>/dev/null && pwd)" ||
    fail "no build folder ${MEMSHIM_BUILD:-build}; build memshim first (scripts/quickstart.sh), or set MEMSHIM_BUILD"
for name in libcuda.so.1 libcudart.so.13 libcudart.so.12 libnvidia-ml.so.1 launch; do
    [ -e "$build/simgpu/$name" ] ||
        fail "$build/simgpu/$name is missing; build memshim (cmake --build $build)"
done

venv="${MEMSHIM_VENV:-}"
if [ -n "$venv" ]; then
    [ -x "$venv/bin/python" ] || fail "MEMSHIM_VENV=$venv has no bin/python"
elif [ -z "${VIRTUAL_ENV:-}" ] && [ -x "$root/.venv/bin/python" ]; then
    venv="$root/.venv"
fi
if [ -n "$venv" ]; then
    PATH="$(cd "$venv" && pwd)/bin:$PATH"
    export PATH
fi

doubles="$build/simgpu/libcuda.so.1:$build/simgpu/libnvidia-ml.so.1"
libraries=""
if python="$(command -v python || command -v python3)"; then
    libraries="$("$python" "$build/simgpu/doubles/build.py" "$build/simgpu" "$build/simgpu")" ||
        fail "the doubles of PyTorch's libraries could not be made (see above)"
fi
doubles+=":${libraries:-$build/simgpu/libcudart.so.13}"
doubles="${doubles//$'\n'/:}"
export LD_LIBRARY_PATH="$build/simgpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# memshim's own library, where it is preloaded already, comes before what it stands on.
job=(env "LD_PRELOAD=${preload:+$preload:}$doubles" "$@")
if [ -n "${SIMGPU_SHARED:-}" ]; then
    exec "${job[@]}"
fi
folder="$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" simgpu.XXXXXX)"
export SIMGPU_SHARED="$folder/devices"
exec "$build/simgpu/launch" "$folder" "${job[@]}"
