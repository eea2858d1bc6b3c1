/* Locks of the application's own virtual memory management, around fork. */
#ifndef MEMSHIM_SHIM_SERVE_VMM_H
#define MEMSHIM_SHIM_SERVE_VMM_H

void ms_vmm_fork_prepare(void);
void ms_vmm_fork_parent(void);
void ms_vmm_fork_child(void);

#endif
