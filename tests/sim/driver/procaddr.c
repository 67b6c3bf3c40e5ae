// procaddr.c: cuGetProcAddress, in both forms.
//
// The answer depends on the name, the version that the caller was written for, and whether it
// wants the per-thread default stream: of the exports that existed at that version, the newest.
// A version above this driver's own is accepted, but gives nothing newer than the driver: the
// table has the answers of a newer driver than the machine's may be.
#include "driver.h"

#include <string.h>

// The exports under names of our own: their types do not matter here, only their addresses.
#define E(name) void export_##name(void) __asm__(#name);
#include "exports.inc"
#undef E

static const struct answer {
    const char *name;
    int flags;  // bits: 1 << flag
    int since;
    void (*function)(void);
} answers[] = {
#define P(name, flags, since, function) {#name, flags, since, export_##function},
#include "procaddr.inc"
#undef P
};

#define ANSWERS (sizeof answers / sizeof answers[0])

enum status { FOUND = 0, UNKNOWN = 1, VERSION_TOO_LOW = 2 };

// The first answer for a name; the table is sorted by name, then by version.
static size_t first(const char *name) {
    size_t low = 0, high = ANSWERS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(answers[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum status find(const char *name, int version, uint64_t flags, void **function) {
    enum status status = UNKNOWN;
    int newest = driver_version();
    for (size_t i = first(name); i < ANSWERS && !strcmp(answers[i].name, name); i++) {
        if (!(answers[i].flags & 1 << flags) || answers[i].since > newest)
            continue;
        if (answers[i].since <= version) {
            status = FOUND;
            *function = (void *)(uintptr_t)answers[i].function;
        } else if (status == UNKNOWN) {
            status = VERSION_TOO_LOW;
        }
    }
    return status;
}

API cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    if (!symbol || !function || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    return find(symbol, version, flags, function) == FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status) {
    if (!symbol || !function || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    *function = NULL;
    enum status found = find(symbol, version, flags, function);
    if (status)
        *status = (int)found;
    return CUDA_SUCCESS;
}
