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
#include "arena.h"
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
    uint64_t visit;  // submit.c: marks it on a walk
};

struct capture;
struct node;

// Nodes of graphs.
struct nodes {
    struct node **at;
    uint32_t count, room;
};

struct stream {
    struct object object;
    struct context *context;
    struct capture *capture;    // its tasks become nodes of a graph; NULL: they are submitted
    struct nodes capture_deps;  // that the next one depends on
    uint64_t last;              // seq of the newest operation
    uint32_t flags;
    int32_t priority;
    uint64_t id;
    uint64_t thread;            // of a per-thread default stream
    bool since_legacy;          // is in the list of those used since the last legacy operation
    struct stream *next_since;  // that list
    struct stream *next_thread;
    CUlaunchAttributeValue attributes[4];  // stream_attributes.c
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
    uint32_t losses;         // of its card, before it was made
    struct stream legacy;    // the default stream; not in the pool
    struct stream leftover;  // stands for destroyed streams whose work goes on; so too
    struct stream *threads;  // per-thread default streams
    struct stream *since_legacy;
    struct op *ops;  // ring of SIM_QUEUE_MAX
    uint64_t newest;
    uint32_t captured;   // blocking streams that are captured
    uint64_t launching;  // the thread that is in the middle of a graph's launch; 0: none
    uint32_t blocks[3];  // plain, managed and host memory
    int cache_config;
    int shared_config;
    size_t limits[CU_LIMIT_MAX];
    uint64_t limit_bytes;       // of device memory, for the limits
    uint32_t uses;              // cuCtxAttach adds to them
    struct green *green;        // whose context it is; NULL: an ordinary one
    uint64_t gate;              // an operation that new streams begin behind; 0: none
    struct coredump *coredump;  // settings of its own; NULL: those of all
    uint64_t peers;             // bits of GPUs whose memory is enabled
};

struct event {
    struct object object;
    uint64_t id;
    struct captured_event *captured;  // it was recorded in a capture; NULL: it was not
    struct context *context;
    uint32_t flags;
    uint32_t machine;               // context of the recording
    uint64_t seq;                   // 0: never recorded
    uint64_t finish_ns;             // 0: not known here
    struct sim_signal_name signal;  // of an interprocess event; id 0: it is none
    bool imported;                  // another process made it
};

struct function {
    struct object object;
    uint64_t id;
    struct module *module;
    const struct sim_ptx_function *ptx;
    struct function *next;
    struct kernel *kernel;  // that it is in this context; NULL: none
    struct function *next_of_kernel;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    // The old launch interface keeps its settings here.
    unsigned block[3];
    unsigned shared_bytes;
    unsigned params_bytes;
    bool spins;     // its first parameter is its cost, and it is not interpreted
    bool bodiless;  // a launch changes no data: nothing for the worker to do
    bool loaded;
    unsigned char params[SIM_PTX_PARAM_BYTES_MAX];
};

struct module {
    struct object object;
    struct context *context;  // NULL: gone, while `loading`
    struct library *library;  // NULL: a module of its own
    bool loading;             // being loaded or unloaded: nobody can name it
    struct sim_ptx_module *ptx;
    struct function *functions;
    const struct sim_ptx_variable *cost;  // weir_sim_cost_ns, NULL: none
    uint64_t variables[SIM_PTX_SPACES];   // addresses of its own; 0: none
    uint64_t code_bytes;                  // that its image takes
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
    struct arena *pooled[SIM_GPUS_MAX];   // what memory pools have reserved
    struct arena *graphed[SIM_GPUS_MAX];  // addresses of graphs' memory
    struct arena *managed;
    struct arena *host;
    struct arena *mapped;  // NULL: no addresses have been reserved
    uint32_t halted;       // no data may begin to move
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
int driver_version(void);                // as cuDriverGetVersion gives it, also before cuInit
bool device_ok(CUdevice device);

// ---- visible.c ----

// The GPUs of the machine that CUDA_VISIBLE_DEVICES lets this process see, by device; their number.
uint32_t visible_cards(struct sim_machine *machine, uint32_t cards[SIM_GPUS_MAX]);
// Makes the calling thread the process's stay in the machine, attached to its devices. EAGAIN: one
// of them is not there any more; or another errno value.
int visible_join(void);

// ---- context.c ----

// The calling thread's current context. 201 where there is none, 709 where it is gone, or its
// sticky error. The driver is locked before and after.
CUresult context_current(struct context **context);
struct context *context_get(CUcontext handle);  // NULL: no context
// driver_enter and context_current in one; unlocked again on error.
CUresult context_enter(struct context **context);

// ---- limits.c ----
void limits_init(struct context *context);
void limits_end(struct context *context);

// ---- coredump.c ----
void coredump_end(struct context *context);

// ---- texture.c ----
void textures_drop(struct context *context);

// ---- stream.c ----

// The stream behind a handle: 0 and the legacy handle are the default stream, or the per-thread
// one where `per_thread`. CUDA_ERROR_INVALID_HANDLE.
CUresult stream_get(CUstream handle, bool per_thread, struct stream **stream);
// driver_enter, the stream, its context's sticky error.
CUresult stream_enter(CUstream handle, bool per_thread, struct stream **stream);
void streams_drop(struct context *context);
// The calling thread's number, from 1.
uint64_t thread_number(void);

// ---- event.c ----
struct event *event_get(CUevent handle);  // NULL: no event
// The event is recorded by an operation of a context.
void event_recorded(struct event *event, struct context *context, uint64_t seq);
void events_drop(struct context *context);

// ---- submit.c ----

enum task_kind { TASK_COPY, TASK_SET, TASK_KERNEL, TASK_HOST, TASK_STEP, TASK_PREFETCH };

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
            CUDA_MEMCPY3D what;  // as the program sees it
        } copy;
        struct {
            struct shape to;
            CUdeviceptr address;   // as the program sees it
            size_t count, height;  // elements in a row
            unsigned element;      // bytes
            uint32_t value;
        } set;
        struct {
            struct function *function;
            uint32_t grid[3], block[3];
            uint32_t shared_bytes;
            uint32_t params_bytes;
            bool cooperative;
            uint32_t cluster[3];
            int priority;
        } kernel;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            CUstream stream;
            void *user;
        } host;
        // What is done at its time and not before (of SIM_ENGINE_HOST), with the driver locked, on
        // whatever thread. True: it is over; false: look again in *wait_ns.
        struct {
            bool (*step)(struct task *task, uint64_t *wait_ns);
        } step;
        struct {
            uint32_t first, count;  // managed pages
            unsigned place;         // as the machine counts them
        } prefetch;
    };
    unsigned char params[];
};

struct task *task_make(enum task_kind kind, struct context *context, size_t params_bytes);

// An operation before it has a place: what it needs of the machine, and its data.
struct job {
    enum sim_engine engine;
    uint64_t cost_ns;
    struct task *task;
};

// Appends an operation to a stream, with what the stream's kind implies, and takes the task over.
// Waits while the queue is full (the lock is dropped meanwhile). `extra`: one more dependency, or
// NULL. *seq is its number. Its data are done by op_run_here or, after worker_wake, by the worker.
CUresult submit(struct stream *stream, enum sim_engine engine, uint64_t cost_ns, struct task *task,
                const struct sim_dep *extra, uint64_t *seq);
// Appends an operation of a context, known by its id, that follows the given ones alone.
CUresult submit_after(struct context *context, uint64_t id, struct job job,
                      const struct sim_dep *deps, size_t count, uint64_t *seq);
// Waits while another thread is in the middle of a graph's launch into the stream's context: what
// that submits belongs together.
CUresult stream_turn(const struct stream *stream);
// Makes an operation the stream's newest.
void stream_advance(struct stream *stream, uint64_t seq);
// Whether whatever comes next in the stream follows an operation.
bool stream_follows(const struct stream *stream, struct sim_dep target);
// Waits until an operation's time and data are done; the lock is dropped meanwhile.
CUresult op_wait(struct context *context, uint64_t seq);
// CUDA_SUCCESS or CUDA_ERROR_NOT_READY.
CUresult op_query(struct context *context, uint64_t seq);
// Whether an operation of whatever context is done, or forgotten.
bool op_done(struct sim_dep dep);
// Runs the task of an operation on the calling thread if it is its turn.
void op_run_here(struct context *context, uint64_t seq);
CUresult context_wait(struct context *context);
// Waits until the context's data of up to now are done, whatever their time: none may still move
// when what they use is given away.
void context_settle(struct context *context);
void context_forget_ops(struct context *context);

// ---- capture.c ----

// Refuses a call that its stream's capture does not allow: the capture is invalid from now on.
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
CUresult capture_refuse(struct stream *stream);
// A task submitted to a captured stream becomes a node; takes the task over.
CUresult capture_task(struct stream *stream, struct task *task);
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT where the stream is the default stream and a stream that it
// would have to wait for is captured, which is invalid from now on.
CUresult capture_implicit(const struct stream *stream);
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, with the captures concerned invalid, where the thread may
// not make a potentially unsafe call.
CUresult capture_unsafe(void);
// driver_enter and context_enter for such calls; unlocked again on error.
CUresult driver_enter_unsafe(void);
CUresult context_enter_unsafe(struct context **context);
// The same for a call that asks or waits for the stream's work, and what the two above refuse.
CUresult capture_allows_wait(struct stream *stream);
void capture_stream_gone(struct stream *stream);
// An event is recorded in a captured stream, or the stream waits for it. `external`: by a node.
CUresult capture_record(struct stream *stream, struct event *event, bool external);
// A stream waits for an event, and one of them has to do with a capture.
CUresult capture_wait(struct stream *stream, struct event *event, bool external);
void capture_forget(struct event *event);  // it is recorded outside now, or gone
// Memory taken and given back in a captured stream becomes memory nodes.
CUresult capture_alloc(struct stream *stream, uint32_t gpu, uint64_t bytes, uint64_t *address);
CUresult capture_free(struct stream *stream, uint64_t address);

// ---- memop.c ----

// Checked operations as one job. CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED.
CUresult memop_job(struct context *context, const CUstreamBatchMemOpParams *ops, unsigned count,
                   struct job *job);
// The operations of such a task; NULL: it is another one.
const CUstreamBatchMemOpParams *memop_of(const struct task *task, unsigned *count);

// ---- mempool.c ----

// Gives back what pools hold beyond their release thresholds: after a synchronisation.
void mempools_release(void);
// Gives back all that a device's pools and graphs hold and do not use.
void mempools_reclaim(uint32_t gpu);
// Takes back a pool's piece: in stream order, or at once.
CUresult mempool_give_async(struct block *block, struct stream *stream);
void mempool_give(struct block *block);
// A free without a stream of what a pool or a graph has given out: the program says that it is
// used no more, so nothing is waited for but data that are being moved. CUDA_ERROR_INVALID_VALUE.
CUresult ordered_give(struct block *block);

// ---- graph_memory.c ----

// Frees what a graph has allocated, in stream order or at once. CUDA_ERROR_INVALID_VALUE where it
// is not live.
CUresult allocation_give_async(struct allocation *allocation, struct stream *stream);
CUresult allocation_give(struct allocation *allocation);
// Gives back what the graphs of a device hold and do not use.
void graph_memory_trim(uint32_t gpu);

// ---- user_object.c ----

// Whether programs' objects have lost their last reference; and ends them, with the lock dropped.
bool user_objects_dead(void);
void user_objects_end(void);

// ---- launch.c ----

// A launch of a function, with its arguments.
struct launch {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t params_bytes;
    bool cooperative;
    uint32_t cluster[3];  // blocks of a cluster; zeros: as the function says, or none
    int priority;
    unsigned char params[SIM_PTX_PARAM_BYTES_MAX];
};

// Takes the arguments in, in one of the two forms, and checks the whole.
CUresult launch_check(const struct function *function, struct launch *launch, void **params,
                      void **extra);
// A checked launch as a job. `whole`: with a task even where there are no data to change.
CUresult launch_job(struct function *function, const struct launch *launch, bool whole,
                    struct job *job);

// ---- copy.c ----

// A copy and a set as jobs, for the nodes of graphs. CUDA_ERROR_INVALID_VALUE where the memory is
// not there.
CUresult copy_job(struct context *context, const CUDA_MEMCPY3D *copy, struct job *job);
CUresult set_job(struct context *context, const CUDA_MEMSET_NODE_PARAMS *set, struct job *job);

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
// Ends a call that took memory of a card: managed pages that had to make room are on their way for
// a while, and whoever has taken their place waits, without the lock. CUDA_SUCCESS.
CUresult memory_leave(uint32_t card);
CUresult memory_give(uint64_t address);
void memory_drop(struct context *context);  // all that the context has
// Makes a block the driver's own: cuMemFree refuses it.
void memory_keep(uint64_t address);

// The live block of one of two kinds that begins at an address; NULL: none.
struct block *memory_begins_at(uint64_t address, enum block_kind one, enum block_kind two,
                               struct arena **arena);
void memory_release(struct arena *arena, struct block *block);
// The block that holds an address, in whatever arena; NULL: none.
struct block *memory_find(uint64_t address, struct arena **arena);
// The same for kernels in flight: also what the program has freed in stream order.
struct block *memory_mapped(uint64_t address, struct arena **arena);
// Where the data of [address, address + bytes) lie, for a copy. NULL: not wholly inside one
// allocation. *gpu is -1 for host memory.
void *memory_data(uint64_t address, uint64_t bytes, int *gpu);

// ---- ipc_event.c: what an interprocess event does in place of another ----
CUresult ipc_event_record(struct event *event, struct stream *stream);
CUresult ipc_event_await(struct event *event, struct stream *stream);
CUresult ipc_event_query(struct event *event);
CUresult ipc_event_synchronize(struct event *event);

// ---- peer.c ----

// Whether a device can reach another's memory.
bool peer_ok(uint32_t gpu, uint32_t other);
// Whether kernels of a context may read a block, and write it.
bool memory_reachable(const struct context *context, const struct block *block, bool *writable);
// What a copy from one device to another takes, in ns.
uint64_t peer_copy_ns(uint32_t from, uint32_t to, uint64_t bytes);

// ---- managed.c ----

uint64_t managed_page_bytes(void);
// A block of the arena of managed memory, with its pages. NULL: no room, here or in the machine.
struct block *managed_take(struct arena *arena, uint32_t card, uint64_t bytes);
void managed_give(struct arena *arena, const struct block *block);  // the pages alone

// Whether a device has concurrent managed access.
bool managed_concurrent(uint32_t gpu);
// Whether a kernel with these parameters touches managed memory.
bool managed_among(const struct function *function, const unsigned char *params, size_t bytes);

// How far the managed pages of a task have been gone through; begins with zeros.
struct managed_walk {
    size_t number;
    uint32_t first, count;
    bool writes;
};

// The next few of them. True: there are more.
bool managed_touches(const struct task *task, struct managed_walk *walk,
                     struct sim_touch touches[SIM_TOUCHES_MAX]);
// Whether a task was only made to tell its pages: no data move.
bool managed_task_is_empty(const struct task *task);

// ---- managed_data.c ----

// Whether the data of managed memory move with its pages, between copies of their own.
bool managed_data_on(void);
// Moves the data of a running task's pages to where these lie; the lock is dropped meanwhile.
void managed_data_follow(const struct task *task);
// No data move from the beginning to the end of such a use. Not with the driver locked.
void managed_data_use(bool begins);

// ---- fault.c ----

// With the machine open: CUDA_ERROR_INVALID_VALUE for faults in the environment that cannot be
// read, or the code with which cuInit is to fail.
CUresult fault_init(struct sim_machine *machine);
// Once cuInit has succeeded. `page`: room for a word in memory that is wiped in a forked child.
void fault_start(struct sim_machine *machine, void *page);
// What an operation costs, in ns: without end where that is to be.
uint64_t fault_cost(enum sim_engine engine, const struct task *task, uint64_t cost_ns);
// What goes wrong with a move of managed memory's data.
enum move_mistake { MOVE_WELL, MOVE_LOST, MOVE_TORN, MOVE_TWICE };
enum move_mistake fault_move(void);
// The code that every call on a device gives since it fell off the bus; CUDA_SUCCESS: it did not.
CUresult device_error(uint32_t device);
uint32_t device_losses(uint32_t device);  // how often it did
// The context's sticky error, which a lost device makes.
CUresult context_error(struct context *context);

// ---- host.c ----

// Host memory that was registered, as a whole range. False: not registered.
bool memory_registered(uint64_t address, uint64_t *start, uint64_t *bytes, unsigned *flags);

// ---- module.c ----
void modules_drop(struct context *context);

#endif
