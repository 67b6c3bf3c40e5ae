// layout.h: how the machine file is laid out. Private to the machine's own sources.
//
// Three kinds of state, by how they survive a process that dies or stops half-way:
//   - the slots of processes: atomic words that only their own process changes, counted while it
//     lives. No lock, nothing to repair.
//   - the books of device memory (struct sim_ledger): changed in copies, of which one word names
//   the
//     one in force (memory.c).
//   - the engines (struct sim_engines): under one robust lock. A new holder after a death rebuilds
//     what is derived; a holder that stands still loses its copy to the others (lock.c).
#ifndef SIM_LAYOUT_H
#define SIM_LAYOUT_H

#include "residency.h"

#include <pthread.h>

#define SIM_MAGIC 0x4d495357u  // "WSIM"
#define SIM_LAYOUT 3u
#define SIM_REGIONS 8u        // copies of the engines: one in use, the rest for stopped holders
#define SIM_HOLDS_MAX 16384u  // of shared memory, of all processes together

// Where an operation stands. Only SIM_DONE and what lies before the tail is a fact; the rest is
// derived and can be rebuilt.
enum sim_state {
    SIM_WAITING,   // for its dependencies
    SIM_ARRIVING,  // on its way to the engine
    SIM_READY,     // in the queue of its engine, or in it
    SIM_DONE,
};

// One dependency, and its link in the list of those that wait for the same operation.
struct sim_edge {
    uint64_t seq;
    uint32_t context;
    uint32_t next;
};

struct sim_item {
    uint64_t seq;
    uint64_t submit_ns;
    uint64_t cost_ns;
    uint64_t left_ns;
    uint64_t arrive_ns;
    uint64_t finish_ns;  // 0 until it is done
    struct sim_edge deps[SIM_DEPS_MAX];
    uint32_t next;     // in the list that its state says
    uint32_t waiters;  // first edge that waits for this operation
    uint16_t unmet;    // dependencies that are not done
    uint8_t engine;
    uint8_t state;
    uint8_t begun;  // its engine has, and what its pages cost is in left_ns
    uint8_t reserved[3];
    struct sim_touch touches[SIM_TOUCHES_MAX];
};

// A list of operations (or of contexts), linked by numbers from 1; 0 is none.
struct sim_list {
    uint32_t head;
    uint32_t tail;
};

struct sim_context {
    uint64_t serial;  // of its process; 0: free
    uint64_t cookie;  // by which its process finds it again when a call must be repeated
    uint32_t process;
    uint32_t gpu;
    uint64_t floor;         // all before are done
    uint64_t tail;          // the next seq. Never goes back, so an old seq stays old
    struct sim_list ready;  // for the compute engine, in the order in which they became ready
    uint32_t next;          // in the list of runnable contexts
    uint32_t reserved;
};

enum sim_mode { SIM_IDLE, SIM_SWITCHING, SIM_RUNNING };

struct sim_copier {
    struct sim_list queue;
    uint32_t running;
    uint32_t reserved;
    uint64_t end_ns;
};

// What managed memory costs on a GPU.
struct sim_link {
    uint64_t memory_bytes;
    uint64_t h2d_bytes_per_s;
    uint64_t d2h_bytes_per_s;
    uint64_t latency_ns;  // of one copy
    uint64_t batch_ns;    // of faults
    uint64_t batch_pages;
};

struct sim_gpu {
    uint64_t now_ns;  // up to here the books are written
    uint64_t slice_ns;
    uint64_t switch_ns;
    uint64_t launch_ns;
    uint32_t depth;
    uint32_t mode;      // enum sim_mode
    uint32_t loaded;    // context in the engine, from 1
    uint32_t rivals;    // processes with work for the compute engine
    uint64_t until_ns;  // when the compute engine needs a look
    uint64_t slice_end_ns;
    struct sim_list runnable;  // contexts with ready work, the loaded one not included
    struct sim_list arriving;  // operations on their way, by time of arrival
    struct sim_copier copiers[2];
    uint32_t kick;  // something became ready: look at once
    uint32_t reserved;
    uint64_t busy_ns;
    uint64_t switched_ns;
    uint64_t copy_ns[2];
    uint64_t launches;
    uint64_t switches;
    uint64_t wall_by_rivals_ns[SIM_RIVALS_MAX];
    struct sim_link link;
    uint64_t evicted_ns;  // when the pages that had to make room for plain memory are gone
};

// What a process has on a GPU.
struct sim_stay {
    uint32_t working;  // contexts with ready work
    uint32_t reserved;
    struct sim_books books;
};

// How a card is divided. Each word is set in one step and says all of what it stands for.
struct sim_mig_words {
    uint64_t mode;  // enum sim_mig_mode, or both
    // In the low byte what struct sim_mig_state has, above it who made it: a number that no other
    // creation has.
    uint64_t instance[SIM_MIG_SLICES];
    uint64_t compute[SIM_MIG_SLICES];
};

enum sim_mig_mode { SIM_MIG_ENABLED = 1, SIM_MIG_PENDING = 2 };

struct sim_engines {
    pthread_mutex_t lock;
    uint64_t entered;  // the file's `current` when the present holder came in
    uint32_t gpu_count;
    uint32_t contexts_used;  // contexts from here on were never used
    uint32_t stays_used;     // so too for processes
    uint32_t reserved;
    uint64_t reaped_ns;  // when the dead were last looked for
    struct sim_mig_words mig[SIM_GPUS_MAX];
    // The GPUs that are there, cards and MIG devices. Derived.
    uint32_t active_count;
    uint32_t active[SIM_UNITS_MAX];
    struct sim_gpu gpus[SIM_UNITS_MAX];
    struct sim_context contexts[SIM_CONTEXTS_MAX];
    struct sim_stay stays[SIM_PROCESSES_MAX][SIM_COLUMNS];
    uint64_t plain_books;  // the books of plain memory by which the room of pages was last reckoned
    struct sim_residency residency;
    struct sim_item items[SIM_CONTEXTS_MAX][SIM_QUEUE_MAX];
};

struct sim_process {
    // Held for life by one thread of the process; the kernel marks it when that thread ends.
    _Alignas(64) pthread_mutex_t life;
    uint64_t serial;  // 0: nobody's words count
    uint64_t joined_ns;
    uint64_t attached;                 // see sim_attached_*
    uint64_t groups[SIM_GROUP_DEPTH];  // control groups that it is in, see limit.c
    int32_t pid;
    char name[16];
};

// What a process is attached to, in one word: cards as bits, its MIG device, and the number of the
// MIG device's GPU instance, under which its memory is counted.
static inline uint32_t sim_attached_cards(uint64_t attached) {
    return (uint16_t)attached;
}

static inline unsigned sim_attached_unit(uint64_t attached) {
    return (uint16_t)(attached >> 16);
}

static inline unsigned sim_attached_instance(uint64_t attached) {
    return (uint16_t)(attached >> 32);
}

// What a process has for itself on a GPU.
struct sim_account {
    uint64_t bytes;  // contexts included
    uint32_t contexts;
    uint32_t reserved;
};

// A process holds shared memory.
struct sim_hold {
    uint64_t share;
    uint64_t bytes;
    uint16_t under;  // the card or GPU instance whose memory it is
    uint16_t slot;
    uint32_t group;  // that its first holder was in, see sim_limit_home
};

// The books of device memory.
struct sim_ledger {
    uint32_t processes;  // slots from here on have no account
    uint32_t hold_count;
    struct sim_account accounts[SIM_COLUMNS][SIM_PROCESSES_MAX];
    struct sim_hold holds[SIM_HOLDS_MAX];
};

// A place for a limit of a control group, see limit.c.
struct sim_limit_place {
    uint64_t group;  // 0: free
    uint64_t inode;  // of its directory
    struct sim_limit limit;
};

enum sim_fault_state { SIM_FAULT_FREE, SIM_FAULT_WRITING, SIM_FAULT_ARMED };

struct sim_armed {
    uint32_t state;  // enum sim_fault_state
    uint32_t reserved;
    uint64_t used;  // how often it was met
    struct sim_fault fault;
};

struct sim_signal {
    uint64_t owner;  // serial and slot of its maker, see signals.c; 0: free
    uint64_t id;     // 0: nobody knows it
    uint64_t recording;
};

struct sim_file {
    uint32_t magic;
    uint32_t layout;
    uint64_t bytes;
    uint64_t created_ns;
    struct sim_config config;
    uint64_t serials;  // the last one given
    // Which of `regions` is in use, plus SIM_REGIONS times a count of changes and moves: no value
    // comes twice.
    uint64_t current;
    uint32_t processes_used;        // slots from here on were never used
    uint32_t managed;               // 1: some process has or had managed memory
    uint32_t attention;             // 1: faults are armed or cards lost
    uint32_t losses[SIM_GPUS_MAX];  // see fault.c
    struct sim_armed faults[SIM_FAULTS_MAX];
    struct sim_limit_place limits[SIM_LIMITS_MAX];
    uint64_t creations;  // of MIG instances: the last number given
    struct sim_process processes[SIM_PROCESSES_MAX];
    // Which of `ledgers` is in force, plus their number times a count of changes.
    uint64_t books;
    uint64_t turn;    // until when, in ns, others let one alone change them; 0: nobody asked
    uint64_t shares;  // the last one named
    struct sim_ledger ledgers[2 * SIM_PROCESSES_MAX];  // two a process, by its slot
    struct sim_signal signals[SIM_SIGNALS_MAX];
    struct sim_engines regions[SIM_REGIONS];
};

// A mapping, and who we are in the machine.
struct sim_machine {
    struct sim_file *file;
    uint32_t slot;
    uint64_t serial;   // 0: only a reader
    uint64_t cookies;  // the last one given
    // Of its MIG device. Set before any other thread can use that.
    struct sim_gpu_config device;
    pthread_mutex_t ledger_lock;          // this process's ledgers are one thread's at a time
    struct sim_ledger *ledger;            // for looking at; NULL: not yet
    uint64_t managed_bytes[SIM_COLUMNS];  // that this process has allocated
};

// The configuration of a card, or of this process's MIG device.
static inline const struct sim_gpu_config *sim_config_of(const struct sim_machine *machine,
                                                         unsigned gpu) {
    return gpu < SIM_GPUS_MAX ? &machine->file->config.gpus[gpu] : &machine->device;
}

// lock.c: enters the engines, moved forward to now. Every change made inside must be repeatable:
// if sim_unlock returns false the change may be lost, and the whole must be done again.
struct sim_engines *sim_lock(struct sim_machine *machine);
bool sim_unlock(struct sim_machine *machine, struct sim_engines *engines);
int sim_mutex_init(pthread_mutex_t *mutex);

// mig.c
void sim_mig_read(const struct sim_engines *engines, unsigned card, struct sim_mig_state *state);
// Whether contexts of a process that is attached so can be made on the GPU.
bool sim_mig_usable(const struct sim_engines *engines, uint64_t attached, unsigned gpu);
// The number under which the memory of a MIG device is counted; 0: it is not there.
unsigned sim_mig_instance_of(struct sim_machine *machine, unsigned unit);
// Lists the GPUs that are there.
void sim_mig_activate(struct sim_engines *engines);

// memory.c
void sim_memory_clear(struct sim_machine *machine);  // of all that the slot's last process had
// A context's memory, and the context. ENOMEM.
int sim_memory_take_context(struct sim_machine *machine, unsigned gpu);
void sim_memory_give_context(struct sim_machine *machine, unsigned gpu);
uint32_t sim_memory_contexts(struct sim_machine *machine, unsigned gpu, uint32_t slot);
// Contexts on a GPU, and live processes that have some.
void sim_memory_users(struct sim_machine *machine, unsigned gpu, uint32_t *contexts,
                      uint32_t *processes);
// Fills in the memory of the process in a slot, into zeros.
void sim_memory_of(struct sim_machine *machine, uint32_t slot,
                   struct sim_process_gpu gpus[SIM_COLUMNS]);

// memory.c: a copy of the books for looking at, until sim_ledger_look_end. NULL: no memory for it.
const struct sim_ledger *sim_ledger_look(struct sim_machine *machine);
void sim_ledger_look_end(struct sim_machine *machine);
// What live processes hold of a card or GPU instance by these books, managed memory apart: all of
// them, or those in a control group.
uint64_t sim_memory_sum(const struct sim_file *file, const struct sim_ledger *ledger, unsigned gpu,
                        uint64_t group);

// limit.c: notes in which control groups this process is now.
void sim_limit_enter(struct sim_machine *machine);
// Whether a process is in a control group; of group 0 all are.
bool sim_limit_member(const struct sim_file *file, uint32_t slot, uint64_t group);
// The control group whose limit memory counts against that this process will share: the innermost
// that has one on the card now, shortened; 0: none.
uint32_t sim_limit_home(const struct sim_machine *machine, unsigned gpu);
// Whether all limits of this process's groups allow it more of a card.
bool sim_limit_fits(const struct sim_machine *machine, const struct sim_ledger *ledger,
                    unsigned gpu, uint64_t bytes);

// memory.c: what all live processes hold of a card or GPU instance, but for managed memory. May be
// called under the lock.
uint64_t sim_memory_plain(struct sim_machine *machine, unsigned under);

// managed.c, under the lock: the room that plain memory leaves, and the end of dead processes'
// pages
void sim_managed_room(struct sim_machine *machine, struct sim_engines *engines);
void sim_managed_reap(const struct sim_file *file, struct sim_engines *engines);

// process.c
bool sim_process_alive(const struct sim_file *file, uint32_t slot, uint64_t serial);
bool sim_still_here(const struct sim_machine *machine);

#endif
