// layout.h: how the machine file is laid out. Private to the machine's own sources.
//
// Two kinds of state, by how they survive a process that dies or stops half-way:
//   - the slots of processes and the memory words: atomic words that only their own process
//     changes, counted while it lives. No lock, nothing to repair.
//   - the engines (struct sim_engines): under one robust lock. A new holder after a death rebuilds
//     what is derived; a holder that stands still loses its copy to the others (lock.c).
#ifndef SIM_LAYOUT_H
#define SIM_LAYOUT_H

#include "machine.h"

#include <pthread.h>

#define SIM_MAGIC 0x4d495357u  // "WSIM"
#define SIM_LAYOUT 1u
#define SIM_REGIONS 8u  // copies of the engines: one in use, the rest for stopped holders

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
    uint32_t reserved;
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
};

// What a process has on a GPU.
struct sim_stay {
    uint32_t working;  // contexts with ready work
    uint32_t reserved;
    struct sim_books books;
};

struct sim_engines {
    pthread_mutex_t lock;
    uint64_t entered;  // the file's `current` when the present holder came in
    uint32_t gpu_count;
    uint32_t contexts_used;  // contexts from here on were never used
    uint32_t stays_used;     // so too for processes
    uint32_t reserved;
    uint64_t reaped_ns;  // when the dead were last looked for
    struct sim_gpu gpus[SIM_GPUS_MAX];
    struct sim_context contexts[SIM_CONTEXTS_MAX];
    struct sim_stay stays[SIM_PROCESSES_MAX][SIM_GPUS_MAX];
    struct sim_item items[SIM_CONTEXTS_MAX][SIM_QUEUE_MAX];
};

struct sim_process {
    // Held for life by one thread of the process; the kernel marks it when that thread ends.
    _Alignas(64) pthread_mutex_t life;
    uint64_t serial;  // 0: nobody's words count
    uint64_t joined_ns;
    int32_t pid;
    char name[16];
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
    uint32_t processes_used;  // slots from here on were never used
    uint32_t reserved;
    uint64_t changes[SIM_GPUS_MAX];  // of `held`: a sum is good if none came in between
    struct sim_process processes[SIM_PROCESSES_MAX];
    uint64_t held[SIM_GPUS_MAX][SIM_PROCESSES_MAX];    // bytes, contexts included
    uint64_t taking[SIM_GPUS_MAX][SIM_PROCESSES_MAX];  // bytes asked for, not yet sure
    uint32_t contexts[SIM_GPUS_MAX][SIM_PROCESSES_MAX];
    struct sim_engines regions[SIM_REGIONS];
};

// A mapping, and who we are in the machine.
struct sim_machine {
    struct sim_file *file;
    uint32_t slot;
    uint64_t serial;   // 0: only a reader
    uint64_t cookies;  // the last one given
};

// lock.c: enters the engines, moved forward to now. Every change made inside must be repeatable:
// if sim_unlock returns false the change may be lost, and the whole must be done again.
struct sim_engines *sim_lock(struct sim_machine *machine);
bool sim_unlock(struct sim_machine *machine, struct sim_engines *engines);
int sim_mutex_init(pthread_mutex_t *mutex);

// process.c
bool sim_process_alive(const struct sim_file *file, uint32_t slot, uint64_t serial);
bool sim_still_here(const struct sim_machine *machine);

#endif
