#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Epilog (slurm.conf), run as root on each node of a job that has ended: makes the reports of
# processes that were killed and could not make their own. It works for jobs that were started with
# --memshim (memshim_spank.c), as the job's user, for a minute at most, and never fails: Slurm takes a
# node out of use whose epilog fails.
#
#   MEMSHIM   the memshim executable, where it is not on the PATH of slurmd
[ -n "${SPANK_MEMSHIM_OUTPUT:-}" ] || exit 0
# All parts of a heterogeneous job are in the run of its first part.
first=$SPANK_MEMSHIM_OUTPUT/${SLURM_HET_JOB_ID:-$SLURM_JOB_ID}
# The run of a job's later start has the count of restarts behind a dot.
for run in "$first" "$first".*; do
    [ -d "$run" ] || continue
    timeout 60 setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --init-groups \
        nice "${MEMSHIM:-memshim}" report "$run" >/dev/null 2>&1 </dev/null
done
exit 0
