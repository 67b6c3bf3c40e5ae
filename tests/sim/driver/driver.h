// driver.h: what the files of the simulated driver share.
//
// One mutex (driver.lock) guards all state of this process; it is held for short stretches, never
// while sleeping, while data move, or while a kernel is interpreted. The machine's own lock nests
// inside. Every submitted operation exists twice: in the machine, where its time is computed, and
// in the ring of its context here, where its data are moved (struct op). Synchronisation waits for
// both. A handle given to the program is the address of an object in a pool, so that a bad one is
// recognised without touching it.
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include "../machine.h"
#include "../ptx/ptx.h"
#include "cuda_abi.h"

#include <pthread.h>

#define API __attribute__((visibility("default"))) CUresult

// ---- pool.c: objects behind handles ----

struct pool {
    size_t bytes;   // of one object; each begins with a struct object
    uint32_t most;  // objects at once
    uint32_t used;  // from here on never used
    char *base;
    struct object *free;
};

struct object {
    uint32_t live;
    uint32_t reserved;
    struct object *next_free;
};

void *pool_take(struct pool *pool);  // zeroed; NULL: no room
void pool_drop(struct pool *pool, void *object);
void *pool_get(struct pool *pool, const void *handle);  // NULL: no live object
// The live object at or after number *i, which becomes its own; NULL at the end.
void *pool_next(struct pool *pool, uint32_t *i);

// ---- arena.c: a range of addresses, cut into blocks ----

enum block_kind { BLOCK_FREE, BLOCK_PLAIN, BLOCK_MANAGED, BLOCK_HOST };

struct context;

struct block {
    uint64_t first;  // granule
    uint64_t count;
    uint32_t before;  // physical neighbours, 0: none
    uint32_t after;
    uint32_t next;  // in the list of free blocks of a size, or of a context's blocks
    uint32_t prev;
    enum block_kind kind;
    uint32_t flags;  // as given to the allocation
    struct context *context;
    uint64_t bytes;  // as asked for
    uint64_t id;     // unique in the process
    uint32_t sync_memops;
    uint32_t reserved;
};

struct arena;

// `hidden`: the program sees addresses that it cannot touch, the data lie elsewhere.
int arena_make(struct arena **arena, uint64_t bytes, uint64_t hint, bool hidden);
struct block *arena_take(struct arena *arena, uint64_t bytes, enum block_kind kind);
void arena_give(struct arena *arena, struct block *block);
struct block *arena_find(struct arena *arena, uint64_t address);  // NULL: no live block holds it
uint64_t arena_address(const struct arena *arena, const struct block *block);
void *arena_data(const struct arena *arena, uint64_t address);
bool arena_covers(const struct arena *arena, uint64_t address);
// Blocks of one context, as a list.
void arena_own(struct arena *arena, struct block *block, uint32_t *list);
struct block *arena_owned(struct arena *arena, uint32_t list);
void arena_disown(struct arena *arena, struct block *block, uint32_t *list);

// ---- Objects ----

struct task;
struct event;

// An operation, as far as its data go.
struct op {
    uint64_t seq;
    struct sim_dep deps[SIM_DEPS_MAX];
    struct task *task;    // NULL once its data are done
    struct event *event;  // that is recorded by it
    struct op *next;      // in the list of those with data to do
    struct op *prev;
    struct context *context;
    uint32_t data_done;
    uint32_t running;
};

struct stream {
    struct object object;
    struct context *context;
    uint64_t last;  // seq of the newest operation
    uint32_t flags;
    int32_t priority;
    uint64_t id;
    uint64_t thread;            // of a per-thread default stream
    bool since_legacy;          // is in the list of those used since the last legacy operation
    struct stream *next_since;  // that list
    struct stream *next_thread;
};

struct context {
    struct object object;
    uint32_t gpu;      // the device
    uint32_t card;     // its GPU's number in the machine
    uint32_t machine;  // its own number in the machine
    uint32_t flags;
    uint32_t version;  // API version that it was made with
    bool primary;
    uint64_t id;
    CUresult error;          // sticky
    struct stream legacy;    // the default stream; not in the pool
    struct stream leftover;  // stands for destroyed streams whose work goes on; so too
    struct stream *threads;  // per-thread default streams
    struct stream *since_legacy;
    struct op *ops;  // ring of SIM_QUEUE_MAX
    uint64_t newest;
    uint32_t blocks[3];  // plain, managed and host memory
    int cache_config;
    int shared_config;
    size_t limits[CU_LIMIT_MAX];
    uint64_t peers;  // bits of GPUs whose memory is enabled
};

struct event {
    struct object object;
    struct context *context;
    uint32_t flags;
    uint32_t machine;    // context of the recording
    uint64_t seq;        // 0: never recorded
    uint64_t finish_ns;  // 0: not known here
};

struct function {
    struct object object;
    struct module *module;
    const struct sim_ptx_function *ptx;
    struct function *next;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    // The old launch interface keeps its settings here.
    unsigned block[3];
    unsigned shared_bytes;
    unsigned params_bytes;
    bool spins;     // its first parameter is its cost, and it is not interpreted
    bool bodiless;  // a launch changes no data: nothing for the worker to do
    unsigned char params[SIM_PTX_PARAM_BYTES_MAX];
};

struct module {
    struct object object;
    struct context *context;
    struct sim_ptx_module *ptx;
    struct function *functions;
    const struct sim_ptx_variable *cost;  // weir_sim_cost_ns, NULL: none
};

struct driver {
    pthread_mutex_t lock;
    pthread_cond_t done;  // some data are done, or a host function has ended
    pthread_cond_t work;  // for the worker
    struct sim_machine *machine;
    const struct sim_config *config;  // its GPUs are the devices of this process, in their order
    uint32_t cards[SIM_GPUS_MAX];     // by device: the number of its GPU in the machine
    struct op *todo, *todo_last;      // operations with data to do, in the order of submission
    struct pool contexts, streams, events, modules, functions;
    struct context *by_machine[SIM_CONTEXTS_MAX];
    struct context *primary[SIM_GPUS_MAX];
    uint32_t primary_flags[SIM_GPUS_MAX];
    uint32_t retained[SIM_GPUS_MAX];  // how often a primary context is; a reset changes nothing
    struct arena *plain[SIM_GPUS_MAX];
    struct arena *managed;
    struct arena *host;
    uint64_t ids;
};

extern struct driver driver;

// ---- init.c ----

// CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child; CUDA_ERROR_NOT_PERMITTED inside
// a host function.
CUresult driver_check(void);
void driver_in_callback(bool inside);
// Checks, and locks the driver.
CUresult driver_enter(void);
CUresult driver_leave(CUresult result);  // unlocks; returns result
bool device_ok(CUdevice device);

// ---- visible.c ----

// The GPUs of the machine that CUDA_VISIBLE_DEVICES lets this process see, by device; their number.
uint32_t visible_cards(const struct sim_config *machine, uint32_t cards[SIM_GPUS_MAX]);

// ---- context.c ----

// The calling thread's current context. 201 where there is none, 709 where it is gone, or its
// sticky error. The driver is locked before and after.
CUresult context_current(struct context **context);
struct context *context_get(CUcontext handle);  // NULL: no context
// driver_enter and context_current in one; unlocked again on error.
CUresult context_enter(struct context **context);

// ---- stream.c ----

// The stream behind a handle: 0 and the legacy handle are the default stream, or the per-thread
// one where `per_thread`. CUDA_ERROR_INVALID_HANDLE.
CUresult stream_get(CUstream handle, bool per_thread, struct stream **stream);
// driver_enter, the stream, its context's sticky error.
CUresult stream_enter(CUstream handle, bool per_thread, struct stream **stream);
void streams_drop(struct context *context);

// ---- event.c ----
void events_drop(struct context *context);

// ---- submit.c ----

enum task_kind { TASK_COPY, TASK_SET, TASK_KERNEL, TASK_HOST };

// A piece of memory as rows of planes. `pitch` and `plane` in bytes.
struct shape {
    unsigned char *base;
    size_t pitch, plane;
};

struct task {
    enum task_kind kind;
    struct context *context;
    union {
        struct {
            struct shape to, from;
            size_t width, height, depth;
        } copy;
        struct {
            struct shape to;
            size_t count, height;  // elements in a row
            unsigned element;      // bytes
            uint32_t value;
        } set;
        struct {
            struct function *function;
            uint32_t grid[3], block[3];
            uint32_t shared_bytes;
            uint32_t params_bytes;
        } kernel;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            CUstream stream;
            void *user;
        } host;
    };
    unsigned char params[];
};

struct task *task_make(enum task_kind kind, struct context *context, size_t params_bytes);

// Appends an operation to a stream, with what the stream's kind implies, and takes the task over.
// Waits while the queue is full (the lock is dropped meanwhile). `extra`: one more dependency, or
// NULL. *seq is its number. Its data are done by op_run_here or, after worker_wake, by the worker.
CUresult submit(struct stream *stream, enum sim_engine engine, uint64_t cost_ns, struct task *task,
                const struct sim_dep *extra, uint64_t *seq);
// Waits until an operation's time and data are done; the lock is dropped meanwhile.
CUresult op_wait(struct context *context, uint64_t seq);
// CUDA_SUCCESS or CUDA_ERROR_NOT_READY.
CUresult op_query(struct context *context, uint64_t seq);
// Runs the task of an operation on the calling thread if it is its turn.
void op_run_here(struct context *context, uint64_t seq);
CUresult context_wait(struct context *context);
// Waits until the context's data of up to now are done, whatever their time: none may still move
// when what they use is given away.
void context_settle(struct context *context);
void context_forget_ops(struct context *context);

// ---- worker.c ----

// Starts the thread that is this process's life in the machine and moves its data. 0 or an errno.
int worker_start(void);
void worker_wake(void);
// Does an operation's data on this thread, with the lock dropped meanwhile.
void op_run(struct op *op);
bool op_data_ready(const struct op *op);
// Waits until some data are done, at most for a bounded time. Helps with what can be done: the
// worker may be in a host function that waits for this thread.
void data_wait(void);
void todo_append(struct op *op);

// ---- memory.c ----

extern const struct sim_ptx_memory kernel_memory;  // `user` is the context

// A block of device memory for the context. CUDA_ERROR_OUT_OF_MEMORY.
CUresult memory_take(struct context *context, uint64_t bytes, enum block_kind kind,
                     uint64_t *address);
CUresult memory_give(uint64_t address);
void memory_drop(struct context *context);  // all that the context has

// The live block of one of two kinds that begins at an address; NULL: none.
struct block *memory_begins_at(uint64_t address, enum block_kind one, enum block_kind two,
                               struct arena **arena);
void memory_release(struct arena *arena, struct block *block);
// The block that holds an address, in whatever arena; NULL: none.
struct block *memory_find(uint64_t address, struct arena **arena);
// Where the data of [address, address + bytes) lie, for a copy. NULL: not wholly inside one
// allocation. *gpu is -1 for host memory.
void *memory_data(uint64_t address, uint64_t bytes, int *gpu);

// ---- host.c ----

// Host memory that was registered, as a whole range. False: not registered.
bool memory_registered(uint64_t address, uint64_t *start, uint64_t *bytes, unsigned *flags);

// ---- module.c ----
void modules_drop(struct context *context);

#endif
