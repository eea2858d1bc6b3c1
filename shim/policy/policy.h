/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions when a device's memory runs short. The room below, which makes the devices, calls them
 * through a table. */
#ifndef MEMSHIM_SHIM_POLICY_POLICY_H
#define MEMSHIM_SHIM_POLICY_POLICY_H

/* To be called before the driver is found. Any thread may call it again. */
void ms_policy_install(void);

#endif
