/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim doctor finds out without a device: Python, PyTorch and the machine's libraries. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_HOST_H
#define MEMSHIM_SHIM_CLI_DOCTOR_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct ms_doctor_python {
    bool found;     /* the interpreter ran */
    char path[512]; /* the interpreter's own path, as it reports it */
    char implementation[32];
    unsigned major, minor, micro;
    bool free_threaded;
    bool readable;       /* memshim can read this version's stacks */
    char torch[64];      /* version; empty: not installed there */
    char torch_cuda[32]; /* the CUDA version for which it was built; empty: none */
    bool torch_reports;  /* its libc10 reports every tensor */
    char nccl[32];       /* the version of NCCL that it finds; empty: unknown */
};

/* Asks the interpreter (a name on PATH or a path) in a process of its own, for 20 s at most.
 * PyTorch's files are read; it is not imported. */
void ms_doctor_ask_python(const char *interpreter, struct ms_doctor_python *out);

/* Whether the loader finds this library. */
bool ms_doctor_finds_library(const char *name);

#endif
