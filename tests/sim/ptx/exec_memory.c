// Memory: translation of addresses, loads, stores and atomics.
//
// Global memory may be mapped by other threads and processes that use it at the same time, so every
// access is one atomic machine access of its size; on the hosts that matter this costs nothing.
#include "exec.h"

#include "values.h"

// Resolves through the caller and keeps the answer.
static uint8_t *resolve(struct sim_ptx_block *b, uint64_t address, uint32_t bytes, bool is_write) {
    const struct sim_ptx_memory *memory = b->launch->memory;
    struct sim_ptx_range found;
    void *host;
    bool writable;
    if (!memory || !memory->resolve ||
        !memory->resolve(memory->user, address, &found.start, &found.bytes, &host, &writable))
        return NULL;
    found.host = host;
    found.writable_bytes = writable ? found.bytes : 0;
    // Both must be aligned alike, or an aligned access could be a misaligned one on the host.
    bool is_usable = ((found.start ^ (uintptr_t)host) & 15) == 0 && address >= found.start &&
                     address - found.start < found.bytes &&
                     bytes <= found.bytes - (address - found.start);
    if (!is_usable || (is_write && !writable))
        return NULL;
    b->ranges[b->range_next] = found;
    b->range_next = (b->range_next + 1) % SIM_PTX_RANGES;
    return found.host + (address - found.start);
}

static inline uint8_t *translate_global(struct sim_ptx_block *b, uint64_t address, uint32_t bytes,
                                        bool is_write) {
    for (uint32_t k = 0; k < SIM_PTX_RANGES; k++) {
        const struct sim_ptx_range *r = &b->ranges[k];
        uint64_t at = address - r->start;
        uint64_t room = is_write ? r->writable_bytes : r->bytes;
        if (at < room && bytes <= room - at)
            return r->host + at;
    }
    return resolve(b, address, bytes, is_write);
}

static uint8_t *within(uint8_t *memory, uint64_t size, uint64_t address, uint32_t bytes) {
    return address < size && bytes <= size - address ? memory + address : NULL;
}

// A kernel's parameters are read-only: `is_write` finds nothing there.
static uint8_t *translate_param(struct sim_ptx_thread *t, uint64_t address, uint32_t bytes,
                                bool is_write) {
    const struct sim_ptx_block *b = t->block;
    if (address & SIM_PTX_PARAM_IN_FRAME)
        return within(t->local, t->local_end, address ^ SIM_PTX_PARAM_IN_FRAME, bytes);
    return is_write ? NULL : within(b->params, b->kernel->info.params_bytes, address, bytes);
}

static uint8_t *translate_generic(struct sim_ptx_thread *t, uint64_t address, uint32_t bytes,
                                  bool is_write) {
    struct sim_ptx_block *b = t->block;
    uint64_t offset = address & (SIM_PTX_SHARED_WINDOW - 1);
    switch (address & ~(SIM_PTX_SHARED_WINDOW - 1)) {
    case 0:
        return translate_global(b, address, bytes, is_write);
    case SIM_PTX_SHARED_WINDOW:
        return within(b->shared, b->shared_bytes, offset, bytes);
    case SIM_PTX_LOCAL_WINDOW:
        return within(t->local, t->local_end, offset, bytes);
    case SIM_PTX_PARAM_WINDOW:
        return translate_param(t, offset, bytes, is_write);
    default:
        return NULL;
    }
}

// The host address of an instruction's `bytes` in memory, or NULL after a fault. Inlined into the
// few handlers that use it: worth a third of the time of a load.
static inline __attribute__((always_inline)) void *
translate(struct sim_ptx_thread *t, const struct sim_ptx_insn *i, uint32_t bytes, bool is_write) {
    struct sim_ptx_block *b = t->block;
    uint64_t address = sim_ptx_get(t, i->src[0]) + (uint64_t)i->offset;
    if (i->space == SIM_PTX_AT_FRAME)
        address += t->frame.local_at;
    if (address & (bytes - 1)) {
        sim_ptx_fault(t, SIM_PTX_MISALIGNED_ADDRESS, address);
        return NULL;
    }
    uint8_t *at;
    switch (i->space) {
    case SIM_PTX_AT_GLOBAL:
        at = translate_global(b, address, bytes, is_write);
        break;
    case SIM_PTX_AT_SHARED:
        at = within(b->shared, b->shared_bytes, address, bytes);
        break;
    case SIM_PTX_AT_LOCAL:
    case SIM_PTX_AT_FRAME:
        at = within(t->local, t->local_end, address, bytes);
        break;
    case SIM_PTX_AT_PARAM:
        at = translate_param(t, address, bytes, is_write);
        break;
    default:
        at = translate_generic(t, address, bytes, is_write);
    }
    if (!at)
        sim_ptx_fault(t, SIM_PTX_ILLEGAL_ADDRESS, address);
    return at;
}

static inline uint64_t load_element(const void *at, const struct sim_ptx_insn *i) {
    uint64_t value;
    switch (i->bytes) {
    case 1:
        value = __atomic_load_n((const uint8_t *)at, __ATOMIC_RELAXED);
        break;
    case 2:
        value = __atomic_load_n((const uint16_t *)at, __ATOMIC_RELAXED);
        break;
    case 4:
        value = __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);
        break;
    default:
        return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
    }
    if (!i->is_signed)
        return value;
    unsigned unused_bits = 64 - 8u * i->bytes;
    value = (uint64_t)((int64_t)(value << unused_bits) >> unused_bits);
    return value & UINT64_MAX >> (64 - 8 * i->d_bytes);
}

static void store_element(void *at, uint32_t bytes, uint64_t value) {
    switch (bytes) {
    case 1:
        __atomic_store_n((uint8_t *)at, (uint8_t)value, __ATOMIC_RELAXED);
        break;
    case 2:
        __atomic_store_n((uint16_t *)at, (uint16_t)value, __ATOMIC_RELAXED);
        break;
    case 4:
        __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELAXED);
        break;
    default:
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED);
    }
}

void sim_ptx_run_load(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    const uint8_t *at = translate(t, i, (uint32_t)i->bytes * i->count, false);
    if (!at)
        return;
    if (i->count == 1) {
        sim_ptx_set(t, i->d, load_element(at, i));
        return;
    }
    const uint32_t *registers = t->block->module->lists + i->target;
    for (uint32_t k = 0; k < i->count; k++)
        sim_ptx_set(t, registers[k], load_element(at + k * i->bytes, i));
}

void sim_ptx_run_store(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    uint8_t *at = translate(t, i, (uint32_t)i->bytes * i->count, true);
    if (!at)
        return;
    if (i->count == 1) {
        store_element(at, i->bytes, sim_ptx_get(t, i->src[1]));
        return;
    }
    const uint32_t *values = t->block->module->lists + i->target;
    for (uint32_t k = 0; k < i->count; k++)
        store_element(at + k * i->bytes, i->bytes, sim_ptx_get(t, values[k]));
}

void sim_ptx_run_atomic(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    void *at = translate(t, i, i->bytes, true);
    if (at)
        sim_ptx_set(t, i->d, i->atomic(at, sim_ptx_get(t, i->src[1]), sim_ptx_get(t, i->src[2])));
}

void sim_ptx_run_fence(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    (void)t, (void)i;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void sim_ptx_run_frame_address(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    sim_ptx_set(t, i->d, t->frame.local_at + (uint64_t)i->offset);
}

// One function an operation and type: `expr` makes the new value of `old`, b and c.
#define ATOMIC(name, bits, type, ...)                                                              \
    static uint64_t name##_##type##bits(void *at, uint64_t b_raw, uint64_t c_raw) {                \
        uint##bits##_t seen = __atomic_load_n((uint##bits##_t *)at, __ATOMIC_RELAXED), next;       \
        do {                                                                                       \
            type##bits##_t old = (type##bits##_t)seen, b = (type##bits##_t)b_raw,                  \
                           c = (type##bits##_t)c_raw;                                              \
            (void)old, (void)b, (void)c;                                                           \
            next = (uint##bits##_t)(__VA_ARGS__);                                                  \
        } while (!__atomic_compare_exchange_n((uint##bits##_t *)at, &seen, next, true,             \
                                              __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));                \
        return seen;                                                                               \
    }
#define ATOMIC_BOTH(name, type, ...)                                                               \
    ATOMIC(name, 32, type, __VA_ARGS__)                                                            \
    ATOMIC(name, 64, type, __VA_ARGS__)

ATOMIC_BOTH(add, uint, old + b)
ATOMIC_BOTH(and, uint, old &b)
ATOMIC_BOTH(or, uint, old | b)
ATOMIC_BOTH(xor, uint, old ^ b)
ATOMIC_BOTH(exch, uint, b)
ATOMIC_BOTH(cas, uint, old == b ? c : old)
ATOMIC(cas, 16, uint, old == b ? c : old)
ATOMIC_BOTH(min, uint, old < b ? old : b)
ATOMIC_BOTH(max, uint, old > b ? old : b)
ATOMIC_BOTH(min, int, old < b ? old : b)
ATOMIC_BOTH(max, int, old > b ? old : b)
ATOMIC(inc, 32, uint, old >= b ? 0 : old + 1)
ATOMIC(dec, 32, uint, old == 0 || old > b ? b : old - 1)
ATOMIC(fadd, 32, uint, sim_ptx_from_f32(sim_ptx_f32(old) + sim_ptx_f32(b)))
ATOMIC(fadd, 64, uint, sim_ptx_from_f64(sim_ptx_f64(old) + sim_ptx_f64(b)))

sim_ptx_atomic *sim_ptx_atomic_named(const char *name, bool *compares) {
    static const struct {
        const char *name;
        sim_ptx_atomic *atomic;
    } rows[] = {
        {"add.u32", add_uint32},   {"add.s32", add_uint32},   {"add.u64", add_uint64},
        {"add.s64", add_uint64},   {"add.f32", fadd_uint32},  {"add.f64", fadd_uint64},
        {"and.b32", and_uint32},   {"and.b64", and_uint64},   {"or.b32", or_uint32},
        {"or.b64", or_uint64},     {"xor.b32", xor_uint32},   {"xor.b64", xor_uint64},
        {"exch.b32", exch_uint32}, {"exch.b64", exch_uint64}, {"cas.b16", cas_uint16},
        {"cas.b32", cas_uint32},   {"cas.b64", cas_uint64},   {"min.u32", min_uint32},
        {"min.u64", min_uint64},   {"min.s32", min_int32},    {"min.s64", min_int64},
        {"max.u32", max_uint32},   {"max.u64", max_uint64},   {"max.s32", max_int32},
        {"max.s64", max_int64},    {"inc.u32", inc_uint32},   {"dec.u32", dec_uint32},
    };
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        if (strcmp(name, rows[k].name) != 0)
            continue;
        *compares = strncmp(name, "cas", 3) == 0;
        return rows[k].atomic;
    }
    return NULL;
}
