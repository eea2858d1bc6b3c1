/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's allocator by itself, on small runs whose segments are known from its source. That it
 * comes to what PyTorch reserves is in tests/torch/test_dry_run.py. */
#include <criterion/criterion.h>

#include "report/replay/torch_alone.h"

#define MIB   (UINT64_C(1) << 20)
#define PLACE (UINT64_C(1) << 40)
#define AMPLE (UINT64_C(1) << 40)

static struct ms_recording recording;

static void begin(void)
{
    cr_assert(ms_recording_begin(&recording));
    cr_assert_null(ms_recording_reserve(&recording, 0, 1, PLACE, 4096 * MIB).field);
    cr_assert_null(ms_recording_map(&recording, 0, 1, PLACE, 2048 * MIB).field);
}

static void end(void)
{
    ms_recording_free(&recording);
}

TestSuite(torch_alone, .init = begin, .fini = end);

/* Where it lay in the run does not matter: no two lie in the same place. */
static void born(uint64_t id, uint64_t bytes)
{
    const struct ms_complaint complaint =
        ms_recording_allocated(&recording, 0, id, PLACE + id * 64 * MIB, bytes, 0, 0);

    cr_assert_null(complaint.field, "%s %s", complaint.field, complaint.problem);
}

static void died(uint64_t id)
{
    cr_assert_null(ms_recording_freed(&recording, 0, id).field);
}

static struct ms_torch_alone run(uint64_t cap_bytes, bool expandable)
{
    struct ms_torch_alone result;

    ms_torch_alone_run(&recording, cap_bytes, expandable, &result);
    cr_assert_not(result.host_memory);
    return result;
}

static void expect(uint64_t cap_bytes, bool expandable, uint64_t reserved_bytes)
{
    const struct ms_torch_alone result = run(cap_bytes, expandable);

    cr_assert_not(result.failed);
    cr_assert_eq(result.peak_reserved_bytes, reserved_bytes, "%lu", result.peak_reserved_bytes);
    cr_assert_eq(result.peak_charged_bytes, reserved_bytes);
}

Test(torch_alone, segments)
{
    born(1, 1 * MIB);        /* of 2 MiB */
    born(2, 1 * MIB);        /* in it */
    born(3, 3 * MIB);        /* of 20 MiB */
    born(4, 18 * MIB);       /* of its own */
    born(5, 17 * MIB + 512); /* of its own, rounded up */
    expect(AMPLE, false, (2 + 20 + 18 + 18) * MIB);
}

Test(torch_alone, pages)
{
    born(1, 1 * MIB);
    born(2, 3 * MIB);
    born(3, 15 * MIB); /* behind it: 18 of 20 MiB */
    born(4, 15 * MIB); /* 33 of 40 */
    expect(AMPLE, true, (2 + 40) * MIB);
}

Test(torch_alone, cached_segments_are_given_back)
{
    born(1, 12 * MIB);
    born(2, 12 * MIB);
    died(1);
    born(3, 14 * MIB);
    expect(AMPLE, false, 38 * MIB);
    expect(30 * MIB, false, 26 * MIB);
    cr_assert(run(25 * MIB, false).failed);
}

/* The cache is given back for it, and the run goes on without it. */
Test(torch_alone, an_optional_tensor)
{
    static const bool sites[] = {false, true};

    born(1, 12 * MIB);
    died(1);
    born(2, 14 * MIB);
    cr_assert_null(
        ms_recording_allocated(&recording, 0, 3, PLACE + 192 * MIB, 20 * MIB, 1, 0).field);
    died(3);
    born(4, 12 * MIB);
    cr_assert(run(30 * MIB, false).failed);
    cr_assert_eq(ms_recording_last_site(&recording), 1);
    ms_recording_set_optional(&recording, sites);
    expect(AMPLE, false, 46 * MIB);
    expect(40 * MIB, false, 34 * MIB);
    cr_assert_not(run(40 * MIB, false).went_without);
    expect(30 * MIB, false, 26 * MIB);
    cr_assert(run(30 * MIB, false).went_without);
    cr_assert(run(25 * MIB, false).failed);
}

/* By empty_cache: with the last page its range of addresses goes, and the next is another. */
Test(torch_alone, ranges_of_addresses_come_and_go)
{
    for (uint64_t round = 1; round <= 3; round++) {
        const uint64_t place = PLACE + (4096 * MIB) * round, id = 10 * round;

        cr_assert_null(ms_recording_reserve(&recording, 0, 1 + round, place, 64 * MIB).field);
        cr_assert_null(ms_recording_map(&recording, 0, 1 + round, place, 40 * MIB).field);
        cr_assert_null(
            ms_recording_allocated(&recording, 0, id, place, (12 + 2 * round) * MIB, 0, 0).field);
        died(id);
        cr_assert_null(ms_recording_unmap(&recording, 0, place, 40 * MIB).field);
        cr_assert_null(ms_recording_unreserve(&recording, 0, 1 + round).field);
    }
    expect(AMPLE, false, 18 * MIB);
    expect(AMPLE, true, 20 * MIB);
}

/* A segment with a live tensor in it cannot be given back; pages can. */
Test(torch_alone, fragmentation)
{
    born(1, 30 * MIB);
    died(1);
    born(2, 2 * MIB); /* in what was the first one's */
    born(3, 30 * MIB);
    cr_assert(run(58 * MIB, false).failed);
    expect(60 * MIB, false, 60 * MIB);
    expect(40 * MIB, true, 40 * MIB);
}

Test(torch_alone, what_is_not_its_own)
{
    cr_assert_null(ms_recording_charge(&recording, 0, MS_OPERATION_CHARGE, 500 * MIB).field);
    cr_assert_null(ms_recording_alloc(&recording, 0, 9, 0, 3 * MIB, 0, 0, false).field);
    born(1, 12 * MIB);
    cr_assert_eq(run(AMPLE, false).peak_charged_bytes, 516 * MIB);
    cr_assert_eq(run(AMPLE, false).peak_reserved_bytes, 12 * MIB);
    cr_assert(run(515 * MIB, false).failed);
    cr_assert_not(run(516 * MIB, false).failed);
}

/* The driver cuts small blocks out of memory that they share: two handles of a library take a large
 * block each, and 2 MiB for a small one of each. */
Test(torch_alone, small_blocks_share_the_drivers_memory)
{
    for (uint64_t id = 9; id < 13; id += 2) {
        cr_assert_null(ms_recording_alloc(&recording, 0, id, 0, 32 * MIB, 0, 0, false).field);
        cr_assert_null(ms_recording_alloc(&recording, 0, id + 1, 0, 1024, 0, 0, false).field);
    }
    cr_assert_eq(run(AMPLE, false).peak_charged_bytes, 66 * MIB);
    cr_assert_null(ms_recording_release(&recording, 0, 10, 0).field);
    cr_assert_null(ms_recording_release(&recording, 0, 12, 0).field);
    cr_assert_null(ms_recording_alloc(&recording, 0, 13, 0, 2 * MIB, 0, 0, false).field);
    cr_assert_eq(run(AMPLE, false).peak_charged_bytes, 66 * MIB);
}

/* What the driver or a library takes is not there where PyTorch has cached it. */
Test(torch_alone, nobody_asks_it_for_its_cache)
{
    born(1, 12 * MIB);
    died(1);
    cr_assert_null(ms_recording_charge(&recording, 0, MS_OPERATION_CHARGE, 2 * MIB).field);
    cr_assert_null(ms_recording_alloc(&recording, 0, 9, 0, 4 * MIB, 0, 0, false).field);
    cr_assert(run(13 * MIB, false).failed);
    cr_assert(run(17 * MIB, false).failed);
    cr_assert_not(run(18 * MIB, false).failed);
}
