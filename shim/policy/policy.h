/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to devices whose memory becomes short, for the room below, which makes them. */
#ifndef MEMSHIM_SHIM_POLICY_POLICY_H
#define MEMSHIM_SHIM_POLICY_POLICY_H

/* Before the driver is found; again and again, by any thread. */
void ms_policy_install(void);

#endif
