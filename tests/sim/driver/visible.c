// visible.c: CUDA_VISIBLE_DEVICES: which GPUs of the machine this process has as devices, and in
// what order.
//
// The variable lists ordinals and UUIDs ("GPU-" and as many digits as tell one GPU from the rest).
// The list ends before the first entry that names no GPU; one that names a GPU twice counts as
// empty. As with a real driver, what follows the digits of an ordinal is not looked at.
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define UUID_PREFIX "GPU-"
#define UUID_TEXT_BYTES 41  // GPU-8-4-4-4-12 and the zero

static void uuid_text(const struct sim_gpu_config *gpu, char text[UUID_TEXT_BYTES]) {
    char *at = text + sizeof UUID_PREFIX - 1;
    memcpy(text, UUID_PREFIX, sizeof UUID_PREFIX - 1);
    for (unsigned i = 0; i < sizeof gpu->uuid; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = "0123456789abcdef"[gpu->uuid[i] >> 4];
        *at++ = "0123456789abcdef"[gpu->uuid[i] & 15];
    }
    *at = 0;
}

// The one GPU whose UUID begins with an entry; SIM_GPUS_MAX: none, or more than one.
static uint32_t by_uuid(const struct sim_config *machine, const char *entry, size_t length) {
    uint32_t found = SIM_GPUS_MAX;
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        char text[UUID_TEXT_BYTES];
        uuid_text(&machine->gpus[i], text);
        if (length >= sizeof text || memcmp(text, entry, length))
            continue;
        if (found != SIM_GPUS_MAX)
            return SIM_GPUS_MAX;
        found = i;
    }
    return found;
}

static uint32_t by_ordinal(const struct sim_config *machine, const char *entry, size_t length) {
    uint32_t ordinal = 0;
    size_t i = length && *entry == '+', first = i;
    for (; i < length && entry[i] >= '0' && entry[i] <= '9'; i++) {
        ordinal = ordinal * 10 + (uint32_t)(entry[i] - '0');
        if (ordinal >= machine->gpu_count)
            return SIM_GPUS_MAX;
    }
    return i > first ? ordinal : SIM_GPUS_MAX;
}

// The GPU that an entry names; SIM_GPUS_MAX: none.
static uint32_t named(const struct sim_config *machine, const char *entry, size_t length) {
    size_t blank = strspn(entry, " \t");
    blank = blank < length ? blank : length;
    entry += blank;
    length -= blank;
    while (length && (entry[length - 1] == ' ' || entry[length - 1] == '\t'))
        length--;
    bool uuid = length >= sizeof UUID_PREFIX - 1 && !memcmp(entry, UUID_PREFIX, 4);
    return uuid ? by_uuid(machine, entry, length) : by_ordinal(machine, entry, length);
}

uint32_t visible_cards(const struct sim_config *machine, uint32_t cards[SIM_GPUS_MAX]) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t count = 0, seen = 0;
    if (!list) {
        for (; count < machine->gpu_count; count++)
            cards[count] = count;
        return count;
    }
    for (;;) {
        size_t length = strcspn(list, ",");
        uint32_t card = named(machine, list, length);
        if (card == SIM_GPUS_MAX)
            return count;
        if (seen >> card & 1)
            return 0;
        seen |= 1u << card;
        cards[count++] = card;
        if (!list[length])
            return count;
        list += length + 1;
    }
}
