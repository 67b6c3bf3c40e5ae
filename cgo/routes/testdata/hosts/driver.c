// driver.c: the functions of the test driver (libcuda.so.1) that do something.
//
// cuGetProcAddress answers as the real one: by name, version and stream flag. Built with
// -DLACKS='"name"' it does not give that export, and a version script hides it. Linked with
// -Bsymbolic, lest a preloaded library take part in its answers; it needs no other library.
#include <stddef.h>
#include <stdint.h>

#ifndef LACKS
#define LACKS ""
#endif

#define VERSION 12050

enum streams { ANY, LEGACY, THREAD, NEVER };
enum { FLAG_THREAD = 2, FLAG_LAST = FLAG_THREAD };
enum { STATUS_FOUND, STATUS_UNKNOWN, STATUS_TOO_OLD };

#define ROW_DECLARE(export) extern const char export[];
#define HOOK(export, asked, since, streams, class) ROW_DECLARE(export)
#define LATER(export, asked, since, streams, class, waits) ROW_DECLARE(export)
#define PASS(export, asked, since, streams, class) ROW_DECLARE(export)
#include "symbols.def"

static const struct row {
    const char *asked, *export;
    const void *function;
    int since;
    enum streams streams;
} rows[] = {
#define ROW(export, asked, since, streams) {#asked, #export, export, since, streams},
#define HOOK(export, asked, since, streams, class) ROW(export, asked, since, streams)
#define LATER(export, asked, since, streams, class, waits) ROW(export, asked, since, streams)
#define PASS(export, asked, since, streams, class) ROW(export, asked, since, streams)
#include "symbols.def"
};

static int same(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static const void *find(const char *asked, int version, uint64_t flags, int *status) {
    const struct row *best = NULL;
    *status = STATUS_UNKNOWN;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        if (row->streams == NEVER || row->streams == (flags == FLAG_THREAD ? LEGACY : THREAD) ||
            !same(row->asked, asked) || same(row->export, LACKS))
            continue;
        if (row->since > version) {
            if (!best)
                *status = STATUS_TOO_OLD;
        } else if (!best || row->since > best->since) {
            best = row;
            *status = STATUS_FOUND;
        }
    }
    return best ? best->function : NULL;
}

// The names in quotes are those of the exports; here they would clash with their declarations
// above.
int get_v1(const char *asked, void **function, int version,
           uint64_t flags) __asm__("cuGetProcAddress");
int get_v2(const char *asked, void **function, int version, uint64_t flags,
           int *status) __asm__("cuGetProcAddress_v2");
int get_version(int *version) __asm__("cuDriverGetVersion");
int get_table(const void **table, const void *id) __asm__("cuGetExportTable");
int allocate(uint64_t *pointer, size_t bytes) __asm__("cuMemAlloc_v2");
int get_info(size_t *free_bytes, size_t *total_bytes) __asm__("cuMemGetInfo_v2");

int get_v1(const char *asked, void **function, int version, uint64_t flags) {
    int status;
    if (!asked || !function || flags > FLAG_LAST)
        return 1;
    const void *found = find(asked, version, flags, &status);
    if (!found)
        return 500;
    *function = (void *)found;
    return 0;
}

int get_v2(const char *asked, void **function, int version, uint64_t flags, int *status) {
    int ignored;
    if (!asked || !function || flags > FLAG_LAST)
        return 1;
    *function = (void *)find(asked, version, flags, status ? status : &ignored);
    return 0;
}

int get_version(int *version) {
    *version = VERSION;
    return 0;
}

static const void *const exported_table[] = {"this", "is", "the", "driver's"};

int get_table(const void **table, const void *id) {
    (void)id;
    *table = exported_table;
    return 0;
}

int allocate(uint64_t *pointer, size_t bytes) {
    static uint64_t next = 1 << 20;
    *pointer = __atomic_fetch_add(&next, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
    return 0;
}

int get_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = 3u << 30;
    *total_bytes = 4u << 30;
    return 0;
}
