/* SPDX-License-Identifier: Apache-2.0 */
/* Whether memshim leaves the present request to the driver, as plain memory. It does so for NCCL's
 * own memory, which NCCL registers with the network, and for what MEMSHIM_FORWARD names. */
#ifndef MEMSHIM_SHIM_POLICY_FORWARDING_H
#define MEMSHIM_SHIM_POLICY_FORWARDING_H

enum ms_forwarding {
    MS_FORWARDING_NOT,
    MS_FORWARDING_NCCL,
    MS_FORWARDING_ASKED /* by MEMSHIM_FORWARD */
};

/* For the call under way. Walks its stack only where the stack can decide: if the caller is a
 * runtime or a program with NCCL linked in, or if the option is set. */
enum ms_forwarding ms_forwarding_of_call(void);

#endif
