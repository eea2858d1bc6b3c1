/* SPDX-License-Identifier: Apache-2.0 */
// The same in C++: a template's method, put into another function.
#include <cstdio>

extern "C" const char __ehdr_start[];

static volatile long returns_to;

__attribute__((noinline)) static double leaf(double x)
{
    returns_to = static_cast<const char *>(__builtin_return_address(0)) - __ehdr_start;
    return x;
}

namespace sample
{

template <typename T> struct Layer {
    T weight;

    __attribute__((always_inline)) T forward(T input) const
    {
        return weight * leaf(input); // forward
    }
};

struct Model {
    Layer<double> layer;

    __attribute__((noinline)) double run(double input) const
    {
        return layer.forward(input) + 1; // run
    }
};

} // namespace sample

int main()
{
    const sample::Model model = {{2}};
    const double result = model.run(1);

    std::printf("0x%lx\n", static_cast<long>(returns_to));
    return result == 0;
}
