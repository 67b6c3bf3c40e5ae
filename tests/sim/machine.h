// machine.h: the simulated machine, one file that all of its processes map.
//
// The file holds the description of the GPUs, the memory that each process holds, the queues of
// submitted work, and the books (who had the GPU for how long). The simulated driver writes it,
// the simulated NVML and `weir sim status` read it. Rules:
//   - a process may be killed or stopped between any two instructions: its death frees all that it
//     held at the next look of anyone, and a stopped one delays the others by SIM_STEAL_MS at most;
//   - nobody runs the machine: whoever looks moves its engines forward to the present first;
//   - all figures are as simulated: bytes and bandwidths are already divided by `scale`.
// Functions return 0 or an errno value. All may be called from several threads.
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include "fault.h"
#include "limit.h"
#include "managed.h"
#include "mig.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_GPUS_MAX 16u
// Numbers of GPUs: cards first, then the MIG devices that each of them may have (mig.h).
#define SIM_UNITS_MAX (SIM_GPUS_MAX + SIM_GPUS_MAX * SIM_MIG_SLICES)
// What one process can use: each card, and one MIG device, whichever it is.
#define SIM_COLUMNS (SIM_GPUS_MAX + 1)
#define SIM_PROCESSES_MAX 1024u  // alive at once
#define SIM_CONTEXTS_MAX 1024u   // of all processes together
#define SIM_QUEUE_MAX 1024u      // submitted and unfinished operations of one context
#define SIM_DEPS_MAX 3u          // operations that one operation may wait for
#define SIM_RIVALS_MAX 8u        // books tell 1, 2, ... 7, and 8 or more processes with work apart
#define SIM_STEAL_MS 20          // how long a holder of the engine lock may stand still
#define SIM_GRANULE 512u         // device memory is taken in multiples of this, in bytes
#define SIM_PCIE_DEPTH 4u
#define SIM_NVLINKS_MAX 18u  // that one card has

// The most that one operation takes, 13 days: times of a whole queue can be added.
#define SIM_COST_NS_MAX (UINT64_C(1) << 50)

// The directory of the machine file is $WEIR_SIM, else this.
#define SIM_DIRECTORY "/run/weir-sim"
#define SIM_FILE "machine"

// One GPU. A zero in a field marked [default] takes the value in brackets.
struct sim_gpu_config {
    char name[64];  // as cuDeviceGetName gives it, zero-terminated
    uint8_t uuid[16];
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    int32_t numa_node;  // -1: none
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t sm_count;
    uint32_t clock_khz;
    uint32_t memory_clock_khz;
    uint32_t memory_bus_bits;
    uint32_t queue_depth;         // operations in flight per context [1024]; at most SIM_QUEUE_MAX
    uint64_t memory_bytes;        // for programs; rounded down to SIM_GRANULE
    uint64_t reserved_bytes;      // the driver keeps for itself, beside memory_bytes
    uint64_t context_bytes;       // device memory that one context takes; rounded up
    uint64_t h2d_bytes_per_s;     // host to device
    uint64_t d2h_bytes_per_s;     // device to host
    uint64_t memory_bytes_per_s;  // of the device memory: copies within a device, sets
    uint64_t copy_latency_ns;     // of one host-device copy, whatever its size
    uint64_t slice_ns;            // time slice of a context [1024000]
    uint64_t switch_ns;           // from one context to another
    uint64_t launch_ns;           // from the submission to the earliest start
    uint64_t kernel_ns;           // the shortest kernel
    uint64_t thread_ps;           // what each thread of a kernel adds, in picoseconds
    uint64_t context_create_ns;   // how long the making of a context takes its process
    uint64_t page_bytes;        // of managed memory, and granularity of cuMemCreate [2 MiB / scale]
    uint64_t pool_chunk_bytes;  // by which memory pools grow [32 MiB / scale]
    uint64_t fault_batch_ns;    // service of one batch of page faults, transfer apart [35000]
    uint32_t fault_batch_pages;  // most pages that one batch serves [1]
    // 1: it cannot use managed memory while the host does (managed.h).
    uint32_t no_concurrent_managed;
    // Where the card is plugged in: its host bridge, then the switches below it, 0: no more.
    uint8_t pcie_path[SIM_PCIE_DEPTH];
    struct sim_mig_geometry mig;
};

struct sim_config {
    uint32_t cuda_version;        // as cuDriverGetVersion gives it: 12020 is CUDA 12.2 [12020]
    uint32_t gpu_count;           // 1 to SIM_GPUS_MAX
    uint32_t scale;               // bytes of a real card for one byte here; for display only
    uint32_t no_peer_access;      // 1: no card can reach another's memory
    char driver_version[32];      // as NVML gives it: "535.309", zero-terminated
    uint64_t nvlink_bytes_per_s;  // of one link, one way [25 GB/s / scale]
    uint64_t host_bytes;  // most managed memory of all processes together; 0: what the host has
    uint8_t nvlinks[SIM_GPUS_MAX][SIM_GPUS_MAX];  // between two cards, either way the same
    uint32_t memory_limits;  // 1: the driver holds limits of control groups (limit.h)
    uint32_t managed_data;   // 1: data of managed memory move with it (driver/managed_data.c)
    struct sim_gpu_config gpus[SIM_GPUS_MAX];
};

struct sim_machine;  // a mapping of the file in this process

// Where the machine file is looked for, into `path`. ENAMETOOLONG.
int sim_machine_path(char *path, size_t bytes);

// Makes a fresh machine at `path`, mode 0666, in place of one that may be there (whose processes
// keep it until they end). EINVAL where the configuration makes no sense; else of open and rename.
int sim_machine_create(const char *path, const struct sim_config *config);

// Maps the machine. ENOENT: none there; EPROTO: not a machine file of this layout. No descriptor
// stays open, and a forked child does not have the mapping.
int sim_machine_open(const char *path, struct sim_machine **machine);
void sim_machine_close(struct sim_machine *machine);

const struct sim_config *sim_machine_config(const struct sim_machine *machine);

// CLOCK_MONOTONIC, in ns: the clock of all times below.
uint64_t sim_now_ns(void);

// ---- Reading the books ----

// What one process did on one GPU.
struct sim_books {
    uint64_t busy_ns;   // the compute engine worked for it
    uint64_t copy_ns;   // a copy engine worked for it
    uint64_t launches;  // operations submitted to the compute engine
    uint64_t copies;    // operations submitted to the copy engines
    // busy_ns by the number of processes that had work for the compute engine at that moment, this
    // one included: [0] alone, [1] two of them, ...; the last is SIM_RIVALS_MAX or more.
    uint64_t busy_by_rivals_ns[SIM_RIVALS_MAX];
};

struct sim_gpu_state {
    uint64_t memory_bytes;    // of the card
    uint64_t used_bytes;      // allocations and contexts of all live processes, and resident_bytes
    uint64_t resident_bytes;  // managed memory that lies there now
    uint64_t now_ns;          // the books are of this moment
    uint64_t created_ns;      // when the machine was made
    uint64_t busy_ns;         // sum over all processes, the dead included
    uint64_t switch_ns;       // spent on context switches; nobody's
    uint64_t copy_ns[2];      // host to device, device to host
    uint64_t launches;
    uint64_t switches;
    uint32_t contexts;   // live
    uint32_t processes;  // live, with a context on this GPU
    // Wall time by the number of processes with work, as above; switches are within.
    uint64_t wall_by_rivals_ns[SIM_RIVALS_MAX];
};

struct sim_process_gpu {
    uint64_t allocated_bytes;  // contexts not included
    uint64_t shared_bytes;     // of it, memory that several processes may hold
    uint64_t imported_bytes;   // beside it: such memory that an older holder answers for
    uint64_t context_bytes;
    uint32_t contexts;
    uint32_t reserved;
    struct sim_books books;
    struct sim_managed managed;
};

struct sim_process_state {
    uint64_t serial;  // unique in the life of the machine, in the order of first use
    int32_t pid;      // as the process sees itself
    uint32_t alive;   // 0: ended; its books stay readable until its slot is needed
    uint64_t joined_ns;
    char name[16];  // of its program, zero-terminated
    uint32_t unit;  // its MIG device, 0: none
    uint32_t reserved;
    struct sim_process_gpu gpus[SIM_COLUMNS];
};

// Where a process keeps what it has on a GPU.
static inline unsigned sim_column(unsigned gpu) {
    return gpu < SIM_GPUS_MAX ? gpu : SIM_GPUS_MAX;
}

// The configuration of a card, or of a MIG device that is there. EINVAL: no such GPU.
int sim_gpu_describe(struct sim_machine *machine, unsigned gpu, struct sim_gpu_config *config);

// Peer access and its bandwidth from one card to another; none to or from MIG devices.
bool sim_peer_ok(const struct sim_config *config, unsigned from, unsigned to);
uint64_t sim_peer_bytes_per_s(const struct sim_config *config, unsigned from, unsigned to);

// The state of one GPU, moved forward to now. EINVAL: no such GPU.
int sim_machine_gpu(struct sim_machine *machine, unsigned gpu, struct sim_gpu_state *state);

// The process in a slot, 0 to SIM_PROCESSES_MAX - 1. ENOENT: nobody was ever there.
int sim_machine_process(struct sim_machine *machine, unsigned slot,
                        struct sim_process_state *state);

// ---- A process of the machine (the simulated driver) ----

// Makes the calling thread this process's stay in the machine: the process counts as alive until
// that thread ends. Called once. EUSERS: no slot is free.
int sim_process_join(struct sim_machine *machine);
// Takes that back, on the same thread.
void sim_process_leave(struct sim_machine *machine);

// Device memory of `gpu`, in bytes, a multiple of SIM_GRANULE. ENOMEM: it does not fit.
int sim_memory_take(struct sim_machine *machine, unsigned gpu, uint64_t bytes);
void sim_memory_give(struct sim_machine *machine, unsigned gpu, uint64_t bytes);

// What all live processes held at one moment, contexts included, managed memory not. ENOMEM: no
// memory for a look.
int sim_memory_used(struct sim_machine *machine, unsigned gpu, uint64_t *bytes);

// Card memory and what is free of it, or about that while it changes.
void sim_memory_info(struct sim_machine *machine, unsigned gpu, uint64_t *free_bytes,
                     uint64_t *total_bytes);

// Memory that several processes may hold, a share: it counts once on its GPU while any live process
// holds it, as memory of the one that has held it longest.
//
// A name for one that is to be: never 0, and no other share's, not even another machine's.
uint64_t sim_share_name(struct sim_machine *machine);
// Makes memory that this process has taken a share, which it holds: nothing is free in between.
// EEXIST: there is one of that name; ENOSPC: SIM_HOLDS_MAX are there.
int sim_share_move(struct sim_machine *machine, unsigned gpu, uint64_t share, uint64_t bytes);
// Holds one, of which GPU and size are known. EEXIST: this process does already; EINVAL: it has
// another GPU or size; ENOMEM: no live process holds it, and it does not fit; ENOSPC.
int sim_share_hold(struct sim_machine *machine, unsigned gpu, uint64_t share, uint64_t bytes);
void sim_share_drop(struct sim_machine *machine, uint64_t share);
// Whether a live process holds it.
bool sim_share_held(struct sim_machine *machine, uint64_t share);

// A context takes context_bytes of device memory. ENOMEM; EUSERS: SIM_CONTEXTS_MAX are there;
// ENODEV: the card is divided (mig.h), or the process is not attached to the MIG device.
int sim_context_open(struct sim_machine *machine, unsigned gpu, uint32_t *context);
// Its unfinished work is dropped.
void sim_context_close(struct sim_machine *machine, uint32_t context);

// ---- Work ----

enum sim_engine {
    SIM_ENGINE_NONE,     // done as soon as its dependencies are: events, joins
    SIM_ENGINE_COMPUTE,  // kernels, sets, copies within a device
    SIM_ENGINE_H2D,
    SIM_ENGINE_D2H,
    SIM_ENGINE_HOST,  // done when sim_work_finish says so: host functions
};

// An operation of the same process: `seq` counts from 1 in each context. seq 0: none.
struct sim_dep {
    uint64_t seq;
    uint32_t context;
};

struct sim_work {
    enum sim_engine engine;
    uint64_t cost_ns;  // of the engine, when it is alone; more than SIM_COST_NS_MAX counts as that
    struct sim_dep deps[SIM_DEPS_MAX];
    // Of managed memory. What they cost is known when the engine begins, and is added.
    struct sim_touch touches[SIM_TOUCHES_MAX];
    bool part;  // of the next operation, and not counted as one
};

// Appends an operation. *recycled_finish_ns is the finish of the operation SIM_QUEUE_MAX before it,
// which cannot be asked for any more (0: there was none). EAGAIN: the queue is full, *wait_ns says
// for how long at least. EBADF: no such context of this process. One thread at a time per context.
int sim_work_submit(struct sim_machine *machine, uint32_t context, const struct sim_work *work,
                    uint64_t *seq, uint64_t *recycled_finish_ns, uint64_t *wait_ns);

// Whether an operation has finished: *finish_ns, or 0 and the least time until then in *wait_ns
// (UINT64_MAX: it waits for a sim_work_finish). One too old to be known has *finish_ns = 1.
int sim_work_look(struct sim_machine *machine, uint32_t context, uint64_t seq, uint64_t *finish_ns,
                  uint64_t *wait_ns);

// Whether all dependencies of a SIM_ENGINE_HOST operation have finished, as sim_work_look.
int sim_work_ready(struct sim_machine *machine, uint32_t context, uint64_t seq, bool *ready,
                   uint64_t *wait_ns);

// The oldest operation of the context that has not finished; all before it have.
int sim_work_oldest(struct sim_machine *machine, uint32_t context, uint64_t *seq);

// Ends a SIM_ENGINE_HOST operation now.
int sim_work_finish(struct sim_machine *machine, uint32_t context, uint64_t seq);

// Whether an operation of any process has ended, or will never.
bool sim_work_ended(struct sim_machine *machine, struct sim_dep work);

// ---- Signals: events that several processes know ----

#define SIM_SIGNALS_MAX 4096u

struct sim_signal_name {
    uint64_t id;  // no other signal ever has it
    uint32_t index;
    uint32_t reserved;
};

// Makes one that lives as long as this process. ENOSPC.
int sim_signal_make(struct sim_machine *machine, struct sim_signal_name *name);
void sim_signal_drop(struct sim_machine *machine, const struct sim_signal_name *name);
// Says which operation of this process records it now. ENOENT: it is gone.
int sim_signal_record(struct sim_machine *machine, const struct sim_signal_name *name,
                      uint32_t context, uint64_t seq);
// Which operation recorded it last, of whatever process; seq 0: none yet. ENOENT.
int sim_signal_look(struct sim_machine *machine, const struct sim_signal_name *name,
                    struct sim_dep *recording);

// What a host-device copy of `bytes` and a kernel of `threads` take on `gpu`, in ns.
uint64_t sim_cost_copy(const struct sim_machine *machine, unsigned gpu, enum sim_engine engine,
                       uint64_t bytes);
uint64_t sim_cost_kernel(const struct sim_machine *machine, unsigned gpu, uint64_t threads);

#endif
