/* SPDX-License-Identifier: Apache-2.0 */
/* CuPy: each array inside its pool's blocks. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_CUPY_H
#define MEMSHIM_SHIM_FRAMEWORKS_CUPY_H

/* The prefix of the functions that make Python modules, which the importer looks up. */
#define MS_PYTHON_MODULE "PyInit_"

/* The importer found such a function (null: it did not). The caller holds no lock. */
void ms_cupy_module(const char *name, const void *found);

#endif
