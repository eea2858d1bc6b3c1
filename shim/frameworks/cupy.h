/* SPDX-License-Identifier: Apache-2.0 */
/* CuPy: each array inside its pool's blocks. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_CUPY_H
#define MEMSHIM_SHIM_FRAMEWORKS_CUPY_H

/* How the function that makes a Python module begins: the importer asks a library for it. */
#define MS_PYTHON_MODULE "PyInit_"

/* Such a function was found there (null: it was not). No lock is held. */
void ms_cupy_module(const char *name, const void *found);

#endif
