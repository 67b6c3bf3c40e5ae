// null.h: what the files of the null driver share.
//
// The null driver is a libcuda.so.1 whose calls return success at once, so that the cost of a
// library in front of it can be seen. It models no GPU: nothing is allocated, copied or computed,
// and no error is found. Environment, read once when the library is loaded:
//   WEIR_NULL_GPUS         number of devices (1)
//   WEIR_NULL_UUIDS        their UUIDs as NVML writes them, separated by commas
//   WEIR_NULL_CONTEXT_MS   how long making a context takes, in milliseconds (0)
//   WEIR_NULL_COUNT        any value: count calls; read them with null_calls
#ifndef WEIR_NULL_H
#define WEIR_NULL_H

#include <stdint.h>

enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_INVALID_DEVICE = 101,
    CU_NOT_FOUND = 500,
};

// One number an export, for counting.
enum null_id {
#define EXPORT(export, asked, since, streams) NULL_ID_##export,
#include "exports.h"
    NULL_IDS
};

extern int null_counting;
extern uint64_t null_counts[NULL_IDS];

// The branch is all that an uncounted call costs.
#define NULL_COUNT(export)                                                                         \
    do {                                                                                           \
        if (__builtin_expect(null_counting, 0))                                                    \
            __atomic_fetch_add(&null_counts[NULL_ID_##export], 1, __ATOMIC_RELAXED);               \
    } while (0)

#define NULL_API __attribute__((visibility("default")))

// How often `export` was called since the library was loaded; UINT64_MAX for a name that is none.
NULL_API uint64_t null_calls(const char *export);

#endif
