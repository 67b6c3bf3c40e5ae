// procaddress.c: cuGetProcAddress as the driver answers it, and the counters by name.
//
// The rules (which export for which version and stream flag, which code for a missing name) are
// those read off the drivers; the table is exports.h.
#include "null.h"

#include <stddef.h>
#include <string.h>

enum streams { ANY, LEGACY, THREAD, NEVER };

enum { FLAG_DEFAULT = 0, FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };

// cuGetProcAddress_v2's symbolStatus.
enum { FOUND = 0, NO_SUCH_NAME = 1, VERSION_TOO_LOW = 2 };

struct row {
    const char *export;
    const char *asked;
    int since;
    enum streams streams;
    void *function;
};

#define EXPORT(export, asked, since, streams) extern int export();
#include "exports.h"

static const struct row rows[NULL_IDS] = {
#define EXPORT(export, asked, since, streams) {#export, #asked, since, streams, (void *)export},
#include "exports.h"
};

int null_counting;
uint64_t null_counts[NULL_IDS];

uint64_t null_calls(const char *export) {
    for (size_t i = 0; i < NULL_IDS; i++)
        if (!strcmp(rows[i].export, export))
            return __atomic_load_n(&null_counts[i], __ATOMIC_RELAXED);
    return UINT64_MAX;
}

// The first row that is not below `name`. Rows are sorted by export, and an export begins with its
// name, so all rows of a name lie together from here on, but for longer names in between.
static size_t lower_bound(const char *name) {
    size_t low = 0, high = NULL_IDS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(rows[middle].export, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int serves(const struct row *row, uint64_t flags) {
    switch (row->streams) {
    case ANY:
        return 1;
    case LEGACY:
        return flags != FLAG_PER_THREAD;
    case THREAD:
        return flags == FLAG_PER_THREAD;
    default:
        return 0;
    }
}

static int look_up(const char *name, int version, uint64_t flags, void **function) {
    size_t length = strlen(name);
    const struct row *best = NULL;
    int known = 0;
    if (length == 0)
        return NO_SUCH_NAME;
    for (size_t i = lower_bound(name); i < NULL_IDS; i++) {
        const struct row *row = &rows[i];
        if (strncmp(row->export, name, length))
            break;
        if (strcmp(row->asked, name) || !serves(row, flags))
            continue;
        known = 1;
        if (row->since <= version && (!best || row->since > best->since))
            best = row;
    }
    if (!best)
        return known ? VERSION_TOO_LOW : NO_SUCH_NAME;
    *function = best->function;
    return FOUND;
}

NULL_API int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    NULL_COUNT(cuGetProcAddress);
    if (!name || !function || flags > FLAG_PER_THREAD)
        return CU_INVALID_VALUE;
    return look_up(name, version, flags, function) == FOUND ? CU_OK : CU_NOT_FOUND;
}

NULL_API int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                 int *status) {
    NULL_COUNT(cuGetProcAddress_v2);
    if (!name || !function || flags > FLAG_PER_THREAD)
        return CU_INVALID_VALUE;
    int found = look_up(name, version, flags, function);
    if (found != FOUND)
        *function = NULL;
    if (status)
        *status = found;
    return CU_OK;
}
