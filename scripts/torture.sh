#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The campaign against memshim: random programs, faults, kills and damage, for as long as it is
# given. What is tried, and what a full run has to reach, is said in tests/fuzz/torture/torture.py.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'USAGE'
Usage: scripts/torture.sh [--minutes N] [--seed N] [--only PART]... [--only PART --try SEED]

Builds, then tries each part over and over for N minutes (3; a full run has 60), and prints a table:
tries, failures, and the command that repeats each failure. Exit status 1 when a try failed.
  --seed   of the first try (drawn from the time)
  --only   that part alone: programs, forks, processes, answers, pool, pool threads, pool faults,
           kills, readers, gpu faults, torch
  --try    one try of one part, with everything it says
MEMSHIM_BUILD names another build folder than build, MEMSHIM_VENV another venv than .venv; the part
"torch" needs a venv with PyTorch (scripts/setup.sh --torch).
USAGE
}

for option in "$@"; do
    case $option in
    -h | --help)
        usage
        exit 0
        ;;
    esac
done
setup_main
quietly build_memshim "$MEMSHIM_BUILD"
python=$(find_torch_python || command -v python3)
MEMSHIM_BUILD=$MEMSHIM_BUILD exec "$python" "$MEMSHIM_ROOT/tests/fuzz/torture/torture.py" "$@"
