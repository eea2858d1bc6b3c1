/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what the call that is served asks for is left to the driver, as plain memory: NCCL's own,
 * which it registers with the network, and what MEMSHIM_FORWARD names. */
#ifndef MEMSHIM_SHIM_POLICY_FORWARDING_H
#define MEMSHIM_SHIM_POLICY_FORWARDING_H

enum ms_forwarding {
    MS_FORWARDING_NOT,
    MS_FORWARDING_NCCL,
    MS_FORWARDING_ASKED /* by MEMSHIM_FORWARD */
};

/* Of the call under way. Walks its stack only where that may tell: through a runtime or a program
 * with NCCL linked in, and where the option is set. */
enum ms_forwarding ms_forwarding_of_call(void);

#endif
