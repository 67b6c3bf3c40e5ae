// limit.h: limits of device memory that the driver itself holds, one a control group and card.
//
// Modelled after what NVIDIA documents of driver r615 ("MPS v3 memory partitioning", NVML's
// nvmlDeviceSetMemoryLimits_v1), on the kernel's dmem controller: an allocation that would bring a
// group, those below it included, over its hard limit is refused; whatever device memory it is,
// contexts too, but for managed memory. What programs are told of the card is what the limit leaves
// them. Not modelled: soft limits, which are kept and only matter to an MPS server; limits of MIG
// devices, which have none. Assumed, since nothing says so: memory that several processes may hold
// counts against the limit that its first holder was under, innermost, however long others have it;
// a process that is moved takes the rest of its memory along, at its next allocation. Not seen:
// control groups of a process in a cgroup namespace of its own but for those below that namespace's
// root; a group that was removed keeps its limit until the next limit is set.
#ifndef SIM_LIMIT_H
#define SIM_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_LIMITS_MAX 256u
#define SIM_LIMIT_NONE UINT64_MAX
#define SIM_GROUP_DEPTH 16u             // groups above a process that may have limits
#define SIM_GROUP_DIRECTORY_BYTES 256u  // with the zero byte

struct sim_machine;

struct sim_limit {
    uint64_t soft_bytes;
    uint64_t hard_bytes;
    uint64_t used_bytes;
    uint32_t gpu;
    uint32_t reserved;
    char directory[SIM_GROUP_DIRECTORY_BYTES];  // of the group, where version 2 is mounted
};

// Sets the limits of a control group, by its directory, on a card; a soft limit of 0 and a hard one
// of SIM_LIMIT_NONE take them away. EIO: no control group of version 2 is there, or its path is
// longer than SIM_GROUP_DIRECTORY_BYTES; ENOSPC.
int sim_limit_set(struct sim_machine *machine, unsigned gpu, const char *directory,
                  uint64_t soft_bytes, uint64_t hard_bytes);

// EIO as above; ENOENT: it has none.
int sim_limit_get(struct sim_machine *machine, unsigned gpu, const char *directory,
                  struct sim_limit *limit);

// The limit at a place, 0 to SIM_LIMITS_MAX - 1. ENOENT: there is none.
int sim_limit_at(struct sim_machine *machine, unsigned place, struct sim_limit *limit);

// Lowers what a card has, and what is free of it, to what the limits leave the calling process.
void sim_limit_clamp(struct sim_machine *machine, unsigned gpu, uint64_t *free_bytes,
                     uint64_t *total_bytes);

#endif
