/* SPDX-License-Identifier: Apache-2.0 */
/* Annotations: which locks a function needs or takes, and what they guard. Clang checks them
 * (-Wthread-safety, the part "locks" of scripts/lint.sh). They change no code, and other compilers
 * see nothing of them.
 *
 * Most headers know a pool by its name only, and so cannot name its members. A thread never holds
 * two locks of one rank (lock_rank.def), so one name stands for that lock of all pools:
 *   ms_state_role   a pool's state lock; of arenas without a pool, their own
 *   ms_growth_role  a pool's growth lock
 * A process-wide lock is named as it is taken: *MS_LOCK(VMM).
 *
 * Clang has no annotation for state that changes under two locks and may be read under either: a
 * comment says so instead. Addresses of guarded state may be taken without the lock. */
#ifndef MEMSHIM_ALLOCATOR_BASE_LOCKS_LOCK_ANNOTATIONS_H
#define MEMSHIM_ALLOCATOR_BASE_LOCKS_LOCK_ANNOTATIONS_H

#ifdef __clang__
#    define MS_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#    define MS_ANNOTATION(...)
#endif

/* Of a type: its objects are locks. */
#define MS_CAPABILITY(name) MS_ANNOTATION(capability(name))
/* Of a variable or member: it is read and written under the lock only. */
#define MS_GUARDED_BY(lock) MS_ANNOTATION(guarded_by(lock))
/* Of a function: its caller holds these locks; does not hold them. */
#define MS_REQUIRES(...) MS_ANNOTATION(requires_capability(__VA_ARGS__))
#define MS_EXCLUDES(...) MS_ANNOTATION(locks_excluded(__VA_ARGS__))
/* Of a function: it returns with these locks taken; released; taken where it returns `value`. */
#define MS_ACQUIRE(...)            MS_ANNOTATION(acquire_capability(__VA_ARGS__))
#define MS_RELEASE(...)            MS_ANNOTATION(release_capability(__VA_ARGS__))
#define MS_TRY_ACQUIRE(value, ...) MS_ANNOTATION(try_acquire_capability(value, __VA_ARGS__))
/* Of a function: Clang does not analyse its body. A comment says why. */
#define MS_NO_THREAD_SAFETY MS_ANNOTATION(no_thread_safety_analysis)

/* Declared for the annotations only; no such objects exist. */
struct MS_CAPABILITY("role") ms_lock_role {
    char unused;
};
extern struct ms_lock_role ms_state_role;
extern struct ms_lock_role ms_growth_role;

#endif
