/* SPDX-License-Identifier: Apache-2.0 */
/* A model or a data set of a hub that a command looks for, and that this machine does not have. */
#ifndef SIMGPU_HUB_FILES_H
#define SIMGPU_HUB_FILES_H

/* A file that is not there was looked for: where it is the folder of a hub's repository, its name
 * is left for the answer of a dry run. Keeps errno. */
void sim_hub_missed(const char *path);

#endif
