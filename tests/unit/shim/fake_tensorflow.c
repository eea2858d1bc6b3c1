/* SPDX-License-Identifier: Apache-2.0 */
/* What TensorFlow reads of the environment: tsl::ReadStringFromEnvVar. */
#include <stdlib.h>

__attribute__((visibility("default"))) const char *fake_setting(const char *name);
__attribute__((visibility("default"))) const char *fake_setting(const char *name)
{
    const char *volatile value = getenv(name); /* no tail call: the answer is copied there */
    return value;
}
