// A simulated machine whose first card can be divided into four slices, and the second cannot, for
// the tests of MIG.
#pragma once

#include "../../machine.h"
#include "../nvml_abi.h"

#include <stdbool.h>
#include <sys/types.h>

#define MIB (UINT64_C(1) << 20)
#define SLICE (14 * MIB)
#define CONTEXT (2 * MIB)
#define SLICES 4u

// Ids of the profiles.
enum { FOUR = 0, TWO = 5, ONE = 14, ONE_MEDIA = 21 };

extern char machine_file[64];

// Chooses a directory, sets WEIR_SIM to it; and removes it. False: it could not be made.
bool mig_directory(void);
void mig_remove(void);

// A fresh machine.
void mig_make(void);
// One with NVML initialised and its first card divided.
void mig_begin(void);
void mig_end(void);

struct nvml_device *gpu(unsigned index);
// A GPU instance of the first card, and a compute instance in one.
struct nvml_gpu_instance *create(unsigned profile, unsigned start, unsigned size);
struct nvml_compute_instance *compute(struct nvml_gpu_instance *instance, unsigned profile);

// Both versions of the memory information say so.
void check_memory(struct nvml_device *device, uint64_t total, uint64_t used);

// Kills a child, whose pid must be positive, and waits for its end.
void kill_child(pid_t pid);
