/* PyTorch's reports of its tensors. */
#ifndef MEMSHIM_SHIM_TORCH_H
#define MEMSHIM_SHIM_TORCH_H

#include <stdbool.h>

/* Whether PyTorch has reported anything: then it reports its out-of-memories, too. */
bool ms_torch_reports(void);

/* Whether PyTorch, which is loaded, has the function by which it reports. */
bool ms_torch_will_report(void);

/* At the end, before the trace is closed: where PyTorch allocated and never reported, that is said,
 * lest the report show no tensors as a fact. */
void ms_torch_end(void);

#endif
