// visible.c: CUDA_VISIBLE_DEVICES: which GPUs of the machine this process has as devices, and in
// what order.
//
// The variable lists ordinals of cards and UUIDs ("GPU-" or "MIG-", and as many digits as tell one
// from the rest). The list ends before the first entry that names nothing; one that names a GPU
// twice counts as empty. As with a real driver, what follows the digits of an ordinal is not looked
// at. A card that is divided into MIG instances stands for its first MIG device, or for nothing
// where it has none. Where the list names a MIG device, the first one is all that the process sees;
// so too without the variable.
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_BYTES 4      // "GPU-" or "MIG-"
#define UUID_TEXT_BYTES 41  // GPU-8-4-4-4-12 and the zero
#define NOTHING UINT32_MAX

// The GPUs that can be named.
struct named {
    struct sim_machine *machine;
    uint32_t first[SIM_GPUS_MAX];  // by card: itself, or its first MIG device, or NOTHING
    uint32_t count;
    struct {
        uint32_t number;  // in the machine; for a card what stands for it
        char text[UUID_TEXT_BYTES];
    } uuids[SIM_UNITS_MAX];
};

static void add_uuid(struct named *named, const char *prefix, const uint8_t uuid[16],
                     uint32_t number) {
    char *text = named->uuids[named->count].text, *at = text + PREFIX_BYTES;
    memcpy(text, prefix, PREFIX_BYTES);
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = "0123456789abcdef"[uuid[i] >> 4];
        *at++ = "0123456789abcdef"[uuid[i] & 15];
    }
    *at = 0;
    named->uuids[named->count++].number = number;
}

static void add_card(struct named *named, uint32_t card) {
    const struct sim_gpu_config *config = &sim_machine_config(named->machine)->gpus[card];
    struct sim_mig_state state;
    sim_mig_look(named->machine, card, &state);
    named->first[card] = state.enabled ? NOTHING : card;
    for (unsigned place = 0; state.enabled && place < SIM_MIG_SLICES; place++) {
        if (!state.compute[place])
            continue;
        uint32_t unit = sim_mig_unit(card, place);
        struct sim_gpu_config device;
        sim_mig_describe(config, &state, place, &device);
        add_uuid(named, "MIG-", device.uuid, unit);
        if (named->first[card] == NOTHING)
            named->first[card] = unit;
    }
    add_uuid(named, "GPU-", config->uuid, named->first[card]);
}

// The one GPU whose UUID begins with an entry; NOTHING: none, or more than one.
static uint32_t by_uuid(const struct named *named, const char *entry, size_t length) {
    uint32_t found = NOTHING, matches = 0;
    for (uint32_t i = 0; i < named->count; i++) {
        if (length >= UUID_TEXT_BYTES || memcmp(named->uuids[i].text, entry, length))
            continue;
        found = named->uuids[i].number;
        matches++;
    }
    return matches == 1 ? found : NOTHING;
}

static uint32_t by_ordinal(const struct named *named, const char *entry, size_t length) {
    uint32_t ordinal = 0, count = sim_machine_config(named->machine)->gpu_count;
    size_t i = length && *entry == '+', first = i;
    for (; i < length && entry[i] >= '0' && entry[i] <= '9'; i++) {
        ordinal = ordinal * 10 + (uint32_t)(entry[i] - '0');
        if (ordinal >= count)
            return NOTHING;
    }
    return i > first ? named->first[ordinal] : NOTHING;
}

// The GPU that an entry names; NOTHING: none.
static uint32_t find(const struct named *named, const char *entry, size_t length) {
    size_t blank = strspn(entry, " \t");
    blank = blank < length ? blank : length;
    entry += blank;
    length -= blank;
    while (length && (entry[length - 1] == ' ' || entry[length - 1] == '\t'))
        length--;
    bool uuid = length >= PREFIX_BYTES &&
                (!memcmp(entry, "GPU-", PREFIX_BYTES) || !memcmp(entry, "MIG-", PREFIX_BYTES));
    return uuid ? by_uuid(named, entry, length) : by_ordinal(named, entry, length);
}

// The GPUs of a list, in its order; none where one comes twice.
static uint32_t read_list(const struct named *named, const char *list,
                          uint32_t cards[SIM_GPUS_MAX]) {
    for (uint32_t count = 0;;) {
        size_t length = strcspn(list, ",");
        uint32_t number = find(named, list, length);
        if (number == NOTHING)
            return count;
        for (uint32_t i = 0; i < count; i++)
            if (cards[i] == number)
                return 0;
        if (count < SIM_GPUS_MAX)
            cards[count++] = number;
        if (!list[length])
            return count;
        list += length + 1;
    }
}

uint32_t visible_cards(struct sim_machine *machine, uint32_t cards[SIM_GPUS_MAX]) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    struct named named = {.machine = machine};
    uint32_t count = 0, cards_there = sim_machine_config(machine)->gpu_count;
    for (uint32_t card = 0; card < cards_there; card++)
        add_card(&named, card);
    if (list)
        count = read_list(&named, list, cards);
    for (uint32_t card = 0; !list && card < cards_there; card++)
        if (named.first[card] != NOTHING)
            cards[count++] = named.first[card];
    for (uint32_t i = 0; i < count; i++) {
        if (cards[i] < SIM_GPUS_MAX)
            continue;
        cards[0] = cards[i];
        return 1;
    }
    return count;
}

int visible_join(void) {
    uint32_t cards = 0, unit = 0;
    for (uint32_t i = 0; i < driver.config->gpu_count; i++) {
        if (driver.cards[i] < SIM_GPUS_MAX)
            cards |= 1u << driver.cards[i];
        else
            unit = driver.cards[i];
    }
    int rc = sim_process_join(driver.machine);
    if (rc)
        return rc;
    if (!sim_mig_attach(driver.machine, cards, unit))
        return 0;
    sim_process_leave(driver.machine);
    return EAGAIN;
}
