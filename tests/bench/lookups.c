/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym, which memshim stands in front of, for names that are none of its business:
 * lookups [COUNT]. */
#include <dlfcn.h>

#include "say.h"
#include "timing.h"

int main(int argc, char **argv)
{
    static const char *const names[] = {"cos", "strtod", "curl_easy_init", "cublasCreate_v2"};
    uint64_t count = count_argument(argc, argv, 1000000);
    void *libm = dlopen("libm.so.6", RTLD_NOW);
    EXPECT(libm != NULL);
    uint64_t start = now_ns();
    for (uint64_t i = 0; i < count; i++) {
        void *found = dlsym(libm, names[i % 4]);
        EXPECT(i % 4 != 0 || found != NULL);
    }
    end_with_each(start, count);
}
