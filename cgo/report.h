// report.h: what a program is told about memory under a cap: total = min(cap, the card), free =
// what an allocation could still get. Without a cap the driver's answer is given as it is. With
// swap the total is the cap, too, or that and the swap together (WEIR_GPU_VIRTUAL).
#ifndef WEIR_REPORT_H
#define WEIR_REPORT_H

#include "cuda.h"
#include "state.h"

// WEIR_UNLIMITED in both where there is no cap.
struct weir_report {
    uint64_t cap_bytes;
    uint64_t free_bytes;  // what one allocation of this process could still get of the cap
    // Its memory can be swapped out, so what others have of the card limits neither.
    uint32_t swap;
    // With `swap`: cap_bytes is cap and swap together, and may be more than the card has.
    uint32_t is_virtual;
};

// Finds out about a device; free_bytes only where `want_free` is not 0. Costs no system call while
// this process alone holds memory of the GPU in its container; else a round trip to the agent, or
// an estimate where that is away.
void weir_report(CUdevice device, int want_free, struct weir_report *report);

// Lowers the driver's answer about a device to that.
void weir_report_lower(const struct weir_report *report, uint64_t *free_bytes,
                       uint64_t *total_bytes);

// The same about the GPU with a UUID.
void weir_report_uuid(const uint8_t uuid[16], int want_free, struct weir_report *report);

#endif
