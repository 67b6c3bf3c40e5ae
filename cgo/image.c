// image.c: tells the kinds of images apart, and finds the one that a fat binary's device would get.
// See image.h. The layout of fat binaries is what public tools for them have found.
#include "image.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "sys.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define KIND_PTX 1u
#define KIND_CUBIN 2u
#define FLAG_LZ4 0x2000u
// Entries of one fat binary that are looked at.
#define ENTRIES_MAX 4096u
// The most that a compressed entry is expanded to.
#define EXPANDED_BYTES_MAX ((uint64_t)256 << 20)
// The smallest page of any kernel.
#define PAGE_BYTES 4096u

struct wrapper {
    uint32_t magic, version;
    const void *fatbin;
};

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;  // of all entries
};

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;  // of the payload, behind the header
    uint32_t compressed_bytes, unused;
    uint16_t minor, major;
    uint32_t capability;
    uint32_t name[2];
    uint64_t flags;
};

// Behind `flags` in a header that is long enough.
#define EXPANDED_AT (sizeof(struct entry) + sizeof(uint64_t))

// The entry that a device would get.
struct choice {
    struct entry entry;
    uint64_t at;  // of its header, in the fat binary
    uint32_t merit;
};

void weir_image_add(uint64_t *sum, uint64_t bytes) {
    uint64_t unit = WEIR_IMAGE_UNIT;
    uint64_t rounded =
        bytes < WEIR_IMAGE_BYTES_MAX ? (bytes + unit - 1) / unit * unit : WEIR_IMAGE_BYTES_MAX;
    *sum = *sum + rounded < WEIR_IMAGE_BYTES_MAX ? *sum + rounded : WEIR_IMAGE_BYTES_MAX;
}

bool weir_view_has(const struct weir_view *view, uint64_t at, uint64_t bytes) {
    if (at > view->length || bytes > view->length - at)
        return false;
    if (!view->probe || !bytes)
        return true;
    uintptr_t first = (uintptr_t)view->at + at, last = first + bytes - 1;
    if (last < first)
        return false;
    for (uintptr_t page = first & ~(uintptr_t)(PAGE_BYTES - 1);; page += PAGE_BYTES) {
        if (!weir_sys_readable((const void *)page))
            return false;
        if (last - page < PAGE_BYTES)
            return true;
    }
}

// How well an entry serves a device, 0: not at all. Machine code runs on devices of its own
// generation and the same or a later step; text on all that are not older. Machine code goes before
// text, later steps before earlier ones, and any of them before what does not seem to run: that
// must count too, should a driver know better.
static uint32_t merit(const struct entry *entry, uint32_t capability) {
    bool code = entry->kind == KIND_CUBIN;
    if (!code && entry->kind != KIND_PTX)
        return 0;
    bool runs =
        entry->capability <= capability && (!code || entry->capability / 10 == capability / 10);
    uint32_t step = entry->capability < 0xffff ? entry->capability : 0xffff;
    return runs ? (code ? 0x20000 : 0x10000) + step : 1;
}

static int choose(const struct weir_view *view, const struct fatbin *fatbin, uint32_t capability,
                  struct choice *choice) {
    uint64_t at = fatbin->header_bytes, end = at + fatbin->bytes;
    for (uint32_t i = 0; i < ENTRIES_MAX && end - at >= sizeof(struct entry); i++) {
        struct entry entry;
        if (!weir_view_has(view, at, sizeof(entry)))
            return EFAULT;
        memcpy(&entry, view->at + at, sizeof(entry));
        uint64_t left = end - at;
        if (entry.header_bytes < sizeof(entry) || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes)
            return EINVAL;
        if (merit(&entry, capability) > choice->merit)
            *choice = (struct choice){entry, at, merit(&entry, capability)};
        at += entry.header_bytes + entry.bytes;
    }
    return choice->merit ? 0 : EINVAL;
}

static int read_plain(const struct weir_view *payload, uint32_t kind, struct weir_image *out) {
    return kind == KIND_PTX ? weir_ptx_read(payload, out) : weir_cubin_read(payload, out);
}

// Expands a compressed payload and reads that.
static int read_compressed(const struct weir_view *payload, uint64_t expanded_bytes, uint32_t kind,
                           struct weir_image *out) {
    if (!weir_view_has(payload, 0, payload->length))
        return EFAULT;
    uint8_t *expanded = weir_sys_map(expanded_bytes);
    if (!expanded)
        return ENOMEM;
    int64_t got = weir_lz4_undo(payload->at, payload->length, expanded, expanded_bytes);
    struct weir_view view = {expanded, got > 0 ? (uint64_t)got : 0, false};
    int rc = got > 0 ? read_plain(&view, kind, out) : EINVAL;
    weir_sys_unmap(expanded, expanded_bytes);
    return rc;
}

// How long a compressed payload becomes; 0 where the header does not say, or nothing credible.
static uint64_t expanded_bytes(const struct weir_view *view, const struct choice *choice) {
    uint64_t bytes = 0, at = choice->at + EXPANDED_AT;
    if (choice->entry.header_bytes >= EXPANDED_AT + sizeof(bytes) &&
        weir_view_has(view, at, sizeof(bytes)))
        memcpy(&bytes, view->at + at, sizeof(bytes));
    return bytes <= EXPANDED_BYTES_MAX ? bytes : 0;
}

// What the chosen entry takes. One that cannot be looked into counts by its size.
static void read_choice(const struct weir_view *view, const struct choice *choice,
                        struct weir_image *out) {
    const struct entry *entry = &choice->entry;
    uint64_t bytes = entry->bytes, start = choice->at + entry->header_bytes;
    struct weir_view payload = {view->at + start, 0, view->probe};
    if (start < view->length)  // of a known length, only what the image has
        payload.length = bytes < view->length - start ? bytes : view->length - start;
    int rc = EINVAL;
    if (!(entry->flags & FLAG_LZ4)) {
        rc = read_plain(&payload, entry->kind, out);
    } else {
        if (entry->compressed_bytes && entry->compressed_bytes < payload.length)
            payload.length = entry->compressed_bytes;  // the rest is padding
        uint64_t expanded = expanded_bytes(view, choice);
        if (expanded) {
            bytes = expanded;
            rc = read_compressed(&payload, expanded, entry->kind, out);
        }
    }
    if (rc == 0)
        return;
    *out = (struct weir_image){0, 0};
    weir_image_add(&out->code_bytes, bytes);
}

static int read_fatbin(const struct weir_view *view, uint32_t capability, struct weir_image *out) {
    struct fatbin fatbin;
    struct choice choice = {.merit = 0};
    if (!weir_view_has(view, 0, sizeof(fatbin)))
        return EFAULT;
    memcpy(&fatbin, view->at, sizeof(fatbin));
    if (fatbin.header_bytes < sizeof(fatbin) || fatbin.bytes > WEIR_IMAGE_BYTES_MAX)
        return EINVAL;
    int rc = choose(view, &fatbin, capability, &choice);
    if (rc == 0)
        read_choice(view, &choice, out);
    return rc;
}

// The first word; 0 where a text is shorter.
static uint32_t read_magic(const struct weir_view *view) {
    uint32_t magic = 0;
    for (uint64_t i = 0; i < sizeof(magic); i++) {
        if (!weir_view_has(view, i, 1) || !view->at[i])
            return 0;
        magic |= (uint32_t)view->at[i] << 8 * i;
    }
    return magic;
}

int weir_image_read(const void *image, uint64_t length, uint32_t capability,
                    struct weir_image *out) {
    struct weir_view view = {image, length, length == WEIR_IMAGE_LENGTH_UNKNOWN};
    struct wrapper wrapper;
    *out = (struct weir_image){0, 0};
    if (!image)
        return EINVAL;
    switch (read_magic(&view)) {
    case WRAPPER_MAGIC:
        if (!view.probe)
            return EINVAL;  // an address in a file
        if (!weir_view_has(&view, 0, sizeof(wrapper)))
            return EFAULT;
        memcpy(&wrapper, image, sizeof(wrapper));
        if (!wrapper.fatbin)
            return EINVAL;
        view = (struct weir_view){wrapper.fatbin, WEIR_IMAGE_LENGTH_UNKNOWN, true};
        return read_magic(&view) == FATBIN_MAGIC ? read_fatbin(&view, capability, out) : EINVAL;
    case FATBIN_MAGIC:
        return read_fatbin(&view, capability, out);
    case (uint32_t)ELFMAG0 | 'E' << 8 | 'L' << 16 | 'F' << 24:
        return weir_cubin_read(&view, out);
    default:
        return weir_ptx_read(&view, out);
    }
}
