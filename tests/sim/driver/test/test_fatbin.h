// test_fatbin.h: makes a fat binary of two texts.
#ifndef SIM_TEST_FATBIN_H
#define SIM_TEST_FATBIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The first text is for devices from 7.0 on, the second for those from 9.5 on. Returns the bytes.
static inline size_t fat_binary(uint8_t *out, const char *low, const char *high) {
    struct __attribute__((packed)) {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
    } head = {0xba55ed50u, 1, 16, 0};
    struct __attribute__((packed)) {
        uint16_t kind, version;
        uint32_t header_bytes;
        uint64_t bytes;
        uint32_t unused[3], capability, name[2];
        uint64_t flags;
    } entry = {.kind = 1, .header_bytes = sizeof entry};
    const char *texts[] = {low, high};
    size_t at = sizeof head;
    for (unsigned i = 0; i < 2; i++) {
        entry.bytes = strlen(texts[i]) + 1;
        entry.capability = i ? 95 : 70;
        memcpy(out + at, &entry, sizeof entry);
        memcpy(out + at + sizeof entry, texts[i], entry.bytes);
        at += sizeof entry + entry.bytes;
    }
    head.bytes = at - sizeof head;
    memcpy(out, &head, sizeof head);
    return at;
}

#endif
