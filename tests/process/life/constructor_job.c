/* SPDX-License-Identifier: Apache-2.0 */
/* Its library has used the device before main, and before memshim's own constructor. */
#include "constructor_library.h"
#include "say.h"

int main(void)
{
    CUdeviceptr block = constructor_block();
    unsigned char byte = 0;
    MUST(cuMemsetD8(block, 42, MIB));
    MUST(cuMemcpyDtoH(&byte, block + 999, 1));
    MUST(cuMemFree(block));
    (void)printf("%d\n", byte);
    return 0;
}
