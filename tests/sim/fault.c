// fault.c: see fault.h.
#define _GNU_SOURCE
#include "layout.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CODE_MAX 9999u
#define CODE_DEFAULT 999u  // CUDA_ERROR_UNKNOWN

// A card's word: the code of its last loss, whether it is lost now, and how often it was.
#define LOSS_CODE 0xffffu
#define LOSS_NOW (1u << 16)
#define LOSS_ONE (1u << 17)

// ---- Text ----

// A number of at least one digit, up to `most`.
static int number(const char **text, const char *end, uint32_t most, uint32_t *value) {
    const char *from = *text;
    uint64_t sum = 0;
    for (; *text < end && **text >= '0' && **text <= '9'; ++*text) {
        sum = sum * 10 + (uint64_t)(**text - '0');
        if (sum > most)
            return EINVAL;
    }
    *value = (uint32_t)sum;
    return *text == from ? EINVAL : 0;
}

static bool take_letter(const char **text, const char *end, char letter) {
    bool there = *text < end && **text == letter;
    *text += there;
    return there;
}

static bool in_name(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_';
}

int sim_fault_parse(const char *text, uint32_t bytes, struct sim_fault *fault) {
    const char *end = text + bytes;
    size_t length = 0;
    *fault = (struct sim_fault){.nth = 1, .times = 1, .code = CODE_DEFAULT};
    while (text < end && in_name(*text) && length < sizeof fault->function - 1)
        fault->function[length++] = *text++;
    if (!length)
        return EINVAL;
    if (take_letter(&text, end, ':') &&
        (number(&text, end, UINT32_MAX, &fault->nth) || !fault->nth))
        return EINVAL;
    if (take_letter(&text, end, '+'))
        fault->times = 0;
    else if (take_letter(&text, end, '*') &&
             (number(&text, end, UINT32_MAX, &fault->times) || !fault->times))
        return EINVAL;
    if (take_letter(&text, end, '=') &&
        (number(&text, end, CODE_MAX, &fault->code) || !fault->code))
        return EINVAL;
    return text == end ? 0 : EINVAL;
}

// ---- What a fault means ----

// Whether only endings of a name are left: a version, and the form for per-thread streams.
static bool is_ending(const char *rest) {
    if (!strncmp(rest, "_v", 2) && rest[2] >= '0' && rest[2] <= '9')
        for (rest += 2; *rest >= '0' && *rest <= '9'; rest++)
            ;
    return !*rest || !strcmp(rest, "_ptsz") || !strcmp(rest, "_ptds");
}

int sim_fault_is_event(const struct sim_fault *fault) {
    static const char *const events[] = {SIM_FAULT_KERNEL, SIM_FAULT_MOVE_LOST, SIM_FAULT_MOVE_TORN,
                                         SIM_FAULT_MOVE_TWICE};
    for (unsigned i = 0; i < sizeof events / sizeof events[0]; i++)
        if (!strcmp(fault->function, events[i]))
            return 1;
    return 0;
}

int sim_fault_means(const struct sim_fault *fault, const char *function) {
    size_t length = strlen(fault->function);
    return !strncmp(function, fault->function, length) && is_ending(function + length);
}

int sim_fault_hits(const struct sim_fault *fault, uint64_t used) {
    return used + 1 >= fault->nth &&
           (!fault->times || used + 1 < (uint64_t)fault->nth + fault->times);
}

// ---- Armed faults ----

// Nothing armed and nothing lost: nobody need look. Looked at again afterwards, since another may
// have armed a fault meanwhile and said so before us.
static void settle_attention(struct sim_file *file) {
    for (unsigned again = 0; again < 2; again++) {
        uint32_t any = 0;
        for (unsigned i = 0; i < SIM_FAULTS_MAX; i++)
            any |= __atomic_load_n(&file->faults[i].state, __ATOMIC_SEQ_CST) == SIM_FAULT_ARMED;
        for (unsigned i = 0; i < SIM_GPUS_MAX; i++)
            any |= (__atomic_load_n(&file->losses[i], __ATOMIC_SEQ_CST) & LOSS_NOW) != 0;
        if (any || !again)
            __atomic_store_n(&file->attention, any, __ATOMIC_SEQ_CST);
    }
}

static bool terminated(const char *text, size_t bytes) {
    return memchr(text, 0, bytes) != NULL;
}

int sim_fault_arm(struct sim_machine *machine, const struct sim_fault *fault, uint32_t *id) {
    struct sim_file *file = machine->file;
    if (!fault->function[0] || !terminated(fault->function, sizeof fault->function) ||
        !terminated(fault->process, sizeof fault->process) || !fault->nth || !fault->code)
        return EINVAL;
    for (uint32_t i = 0; i < SIM_FAULTS_MAX; i++) {
        struct sim_armed *armed = &file->faults[i];
        uint32_t free = SIM_FAULT_FREE;
        if (!__atomic_compare_exchange_n(&armed->state, &free, SIM_FAULT_WRITING, false,
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            continue;
        // Their last letters are zeros at all times, whoever reads meanwhile.
        strcpy(armed->fault.function, fault->function);
        strcpy(armed->fault.process, fault->process);
        armed->fault.pid = fault->pid;
        armed->fault.nth = fault->nth;
        armed->fault.times = fault->times;
        armed->fault.code = fault->code;
        __atomic_store_n(&armed->used, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&armed->state, SIM_FAULT_ARMED, __ATOMIC_SEQ_CST);
        __atomic_store_n(&file->attention, 1, __ATOMIC_SEQ_CST);
        *id = i;
        return 0;
    }
    return ENOSPC;
}

static bool is_armed(const struct sim_armed *armed) {
    return __atomic_load_n(&armed->state, __ATOMIC_ACQUIRE) == SIM_FAULT_ARMED;
}

int sim_fault_look(struct sim_machine *machine, uint32_t id, struct sim_fault *fault,
                   uint64_t *used) {
    if (id >= SIM_FAULTS_MAX || !is_armed(&machine->file->faults[id]))
        return ENOENT;
    *fault = machine->file->faults[id].fault;
    *used = __atomic_load_n(&machine->file->faults[id].used, __ATOMIC_RELAXED);
    return 0;
}

int sim_fault_clear(struct sim_machine *machine, uint32_t id) {
    struct sim_file *file = machine->file;
    if (id >= SIM_FAULTS_MAX || __atomic_exchange_n(&file->faults[id].state, SIM_FAULT_FREE,
                                                    __ATOMIC_SEQ_CST) != SIM_FAULT_ARMED)
        return ENOENT;
    settle_attention(file);
    return 0;
}

static bool concerns(const struct sim_fault *fault) {
    char name[sizeof fault->process] = {0};
    strncpy(name, program_invocation_short_name, sizeof name - 1);
    return (!fault->pid || fault->pid == (int32_t)getpid()) &&
           (!fault->process[0] || !strcmp(fault->process, name));
}

uint32_t sim_fault_use(struct sim_machine *machine, const char *function) {
    uint32_t code = 0;
    for (uint32_t i = 0; i < SIM_FAULTS_MAX; i++) {
        struct sim_armed *armed = &machine->file->faults[i];
        if (!is_armed(armed) || !sim_fault_means(&armed->fault, function) ||
            !concerns(&armed->fault))
            continue;
        uint64_t used = __atomic_fetch_add(&armed->used, 1, __ATOMIC_SEQ_CST);
        if (!code && sim_fault_hits(&armed->fault, used))
            code = armed->fault.code;
    }
    return code;
}

const uint32_t *sim_fault_attention(const struct sim_machine *machine) {
    return &machine->file->attention;
}

// ---- Lost cards ----

int sim_gpu_lose(struct sim_machine *machine, unsigned card, uint32_t code) {
    struct sim_file *file = machine->file;
    if (card >= file->config.gpu_count || code > CODE_MAX)
        return EINVAL;
    uint32_t before = __atomic_load_n(&file->losses[card], __ATOMIC_SEQ_CST), after;
    do {
        after = code
                    ? ((before & ~LOSS_CODE) + (before & LOSS_NOW ? 0 : LOSS_ONE)) | LOSS_NOW | code
                    : before & ~LOSS_NOW;
    } while (!__atomic_compare_exchange_n(&file->losses[card], &before, after, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    settle_attention(file);
    return 0;
}

static uint32_t loss_of(const struct sim_machine *machine, unsigned gpu) {
    return __atomic_load_n(&machine->file->losses[sim_mig_card(gpu)], __ATOMIC_ACQUIRE);
}

uint32_t sim_gpu_lost(const struct sim_machine *machine, unsigned gpu) {
    uint32_t word = loss_of(machine, gpu);
    return word & LOSS_NOW ? word & LOSS_CODE : 0;
}

uint32_t sim_gpu_losses(const struct sim_machine *machine, unsigned gpu, uint32_t *code) {
    uint32_t word = loss_of(machine, gpu);
    *code = word & LOSS_CODE;
    return word / LOSS_ONE;
}
