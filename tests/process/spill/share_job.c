/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that have the host's memory in common: each in turn is filled until a request is refused,
 * then what the first has is freed, and the last is filled again.
 *
 * Arguments: MiB of a block, and how many devices. Says, a line for each filling, how many blocks a
 * device got. */
#include "driver.h"
#include "say.h"

enum { DEVICES = 4, BLOCKS = 256 };

static struct driver cu;

struct device {
    CUcontext context;
    CUdeviceptr blocks[BLOCKS];
    unsigned count;
};

static void fill(struct device *device, size_t bytes)
{
    unsigned before = device->count;
    MUST(cu.cuCtxSetCurrent(device->context));
    while (device->count < BLOCKS) {
        CUresult result = cu.cuMemAlloc(&device->blocks[device->count], bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            break;
        }
        MUST(result);
        device->count++;
    }
    (void)printf("%u\n", device->count - before);
}

static void empty(struct device *device)
{
    MUST(cu.cuCtxSetCurrent(device->context));
    while (device->count > 0) {
        MUST(cu.cuMemFree(device->blocks[--device->count]));
    }
}

int main(int argc, char **argv)
{
    static struct device devices[DEVICES];
    EXPECT(argc == 3);
    size_t bytes = strtoull(argv[1], NULL, 10) * MIB;
    int count = (int)strtol(argv[2], NULL, 10);
    EXPECT(count >= 1 && count <= DEVICES);
    cu = driver_use(&devices[0].context);
    for (int i = 0; i < count; i++) {
        CUdevice device;
        MUST(cu.cuDeviceGet(&device, i));
        MUST(cu.cuDevicePrimaryCtxRetain(&devices[i].context, device));
        fill(&devices[i], bytes);
    }
    empty(&devices[0]);
    fill(&devices[count - 1], bytes);
    return 0;
}
