/* SPDX-License-Identifier: Apache-2.0 */
/* C++ frames, and an exception through them, beside captures. */
#include <cstdint>
#include <stdexcept>
#include <string>

#include "native_frames.h"

namespace
{
struct Guard {
    std::string text;
    explicit Guard(const char *value) : text(value)
    {
    }
    ~Guard()
    {
        text.clear();
    }
};

__attribute__((noinline)) uint64_t thrower(frame_t look, struct road *road, int depth)
{
    Guard guard("a string that is longer than what fits into the object");
    if (depth == 0) {
        look(road);
        throw std::runtime_error("from the depth");
    }
    return thrower(look, road, depth - 1) + guard.text.size();
}
} // namespace

extern "C" uint64_t native_exception(frame_t look, struct road *road, int depth)
{
    try {
        return thrower(look, road, depth);
    } catch (const std::runtime_error &error) {
        return look(road) + 1000;
    }
}
