/* SPDX-License-Identifier: Apache-2.0 */
/* Ways into memshim that no program has: memshim's own objects, linked once more together with
 * these (gate.cmake), are preloaded in its place. */
#ifndef MEMSHIM_TESTS_PROCESS_GATE_ENTRY_H
#define MEMSHIM_TESTS_PROCESS_GATE_ENTRY_H

#include <stdint.h>

/* The operations of the pool's table for a device (allocator/device/device_ops.h), statuses as
 * there. */
int gate_halt(int device, uint64_t timeout_ns);
void gate_resume(int device);
int gate_copy(int device, uint64_t to, uint64_t from, uint64_t bytes);
int gate_copy_wait(int device, uint64_t left);

/* A standstill of this length in one call, for callers that would need a lock of Python's in
 * between. The status of the halt; -1 where launches or copies reached the driver meanwhile. */
int gate_stand(int device, uint64_t timeout_ns, uint64_t stand_ns);

/* How much of the block that addr lies in is on the host; it counts as used from here on. */
uint64_t gate_host_bytes(int device, uint64_t addr);

/* What a launch costs more once it is looked at: the look alone. */
void gate_look(const void *function, void **parameters);

/* Runs function inside a counted call, as a callback of the driver's would. */
void gate_inside(void (*function)(void *), void *argument);

/* Why the gate cannot be closed; null where it can. */
const char *gate_why_not(void);

/* Whether something counts as being captured; and the driver's own function that begins it. */
int gate_captures(void);
int gate_begin_capture(void *stream);

/* Around what a capture would be harmed by; 0 where something is captured. */
int gate_hold_off_captures(void);
void gate_let_captures_on(void);

/* From here on memshim does without cuCtxRecordEvent, as with drivers before CUDA 12.5. The driver
 * is known already. */
void gate_hide_context_events(void);

/* Called from here on whenever memshim is about to make an event. */
void gate_before_events(void (*act)(void));

/* Bit d: device d may reach what the pool of this one maps. */
uint64_t gate_access_mask(int device);

/* What is free and waits for work that was queued before. */
uint64_t gate_pending_bytes(int device);

/* What the program would be given that asks the driver for a function without a hook. */
void *gate_stub(const char *name, void *function);

#endif
