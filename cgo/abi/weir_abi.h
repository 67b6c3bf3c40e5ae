// weir_abi.h: everything that crosses a process boundary between the library and the agent.
//
// This is the only declaration; agent-side Go types are generated from it (types.go). Invariants:
//   - fixed-width little-endian integers, explicit padding, every offset asserted below;
//   - no lock lives in shared memory: any process may die between two instructions;
//   - the control page is written by the agent only and sealed against the tenant;
//   - the usage page is hostile input to the agent: it reads one word at a time and checks it.
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#include <stddef.h>
#include <stdint.h>

// The version of this file. HELLO offers a range, WELCOME names the one in use. What lets two
// versions that have nothing in common part in peace never changes: the header, HELLO as far as
// abi_newest, and CLOSE.
#define WEIR_ABI_VERSION 3u
#define WEIR_ABI_OLDEST 3u
// The oldest driver that is served, as cuDriverGetVersion gives it: 11.4 (driver 470), the first
// whose cuDeviceGetUuid tells MIG instances apart.
#define WEIR_DRIVER_OLDEST 11040u

// 8 cards of 7 MIG instances and some to spare.
#define WEIR_GPUS_MAX 64u
// Longest message in either direction, in bytes.
#define WEIR_MSG_BYTES_MAX 2304u
// Both pages are exactly this long, in bytes. A page of another size is refused.
#define WEIR_PAGE_BYTES 16384u
// Sessions one container may have, connections waiting for HELLO included.
#define WEIR_SESSIONS_MAX 4096u
// Pieces of memory that one session may share with others at the same time.
#define WEIR_SHARES_MAX 65536u
// Contexts that one process has on a GPU, at most.
#define WEIR_CONTEXTS_MAX 512u
// Movable memory, and what of it is moved at once, are multiples of this, in bytes.
#define WEIR_MOVABLE_UNIT 2097152u
// Movable allocations that one session may have at the same time.
#define WEIR_MOVABLES_MAX 65536u
// Entries of MOVE, of MOVED, and of USED and FREED.
#define WEIR_MOVES_MAX 32u
#define WEIR_MOVED_MAX 64u
#define WEIR_NAMED_MAX 256u
// Longest futex wait of the library before it looks whether the agent is alive, in milliseconds.
#define WEIR_WAIT_MS_MAX 100u
// Of a lease word: launches are to wait.
#define WEIR_LEASE_CLOSED 1u

#define WEIR_HELLO_MAGIC 0x52494557u    // "WEIR"
#define WEIR_CONTROL_MAGIC 0x434c5452u  // "RTLC"
#define WEIR_USAGE_MAGIC 0x47535557u    // "WUSG"

// A cap of "none". Any other value is a number of bytes.
#define WEIR_UNLIMITED UINT64_MAX

enum weir_msg_type {
    WEIR_MSG_HELLO = 1,      // library -> agent: first message of a connection
    WEIR_MSG_WELCOME = 2,    // agent -> library: carries the control page and the usage page
    WEIR_MSG_REQUEST = 3,    // library -> agent: more credit for one allocation
    WEIR_MSG_VERDICT = 4,    // agent -> library: answer to a REQUEST
    WEIR_MSG_QUERY = 5,      // library -> agent: how much could this session still allocate?
    WEIR_MSG_ANSWER = 6,     // agent -> library: answer to a QUERY
    WEIR_MSG_NOTE = 7,       // library -> agent: something an operator should see; no answer
    WEIR_MSG_CLOSE = 8,      // agent -> library: the last message of a connection, with its reason
    WEIR_MSG_MEASURE = 9,    // library -> agent: how much does one context of mine take?
    WEIR_MSG_MEASURED = 10,  // agent -> library: answer to a MEASURE
    WEIR_MSG_EXPORT = 11,    // library -> agent: memory of this session can be imported by others
    WEIR_MSG_IMPORT = 12,    // library -> agent: this session is about to import memory
    WEIR_MSG_SHARED = 13,    // agent -> library: answer to an EXPORT, an IMPORT or a DROP
    WEIR_MSG_DROP = 14,      // library -> agent: this session has a shared piece of memory no more
    WEIR_MSG_WANT = 15,      // library -> agent: a thread waits at a closed gate
    WEIR_MSG_LOOK = 16,     // agent -> library: look at a GPU's lease, and say what follows from it
    WEIR_MSG_DRAINED = 17,  // library -> agent: of a closed lease all is done
    WEIR_MSG_PROGRESS = 18,  // library -> agent: of a lease that is to end something is done
    WEIR_MSG_IDLE = 19,      // library -> agent: nothing is submitted, and nobody waits
    WEIR_MSG_MOVE = 20,      // agent -> library: move pieces of movable memory, or do not after all
    WEIR_MSG_MOVED = 21,     // library -> agent: what has become of moves
    WEIR_MSG_USED = 22,      // library -> agent: movable memory that kernels use
    WEIR_MSG_FREED = 23,     // library -> agent: movable memory that there is no more
};

// What a REQUEST is for. It names the allocation in events; all kinds but the last draw on one
// credit.
enum weir_kind {
    WEIR_KIND_PLAIN = 1,
    WEIR_KIND_PITCHED = 2,
    WEIR_KIND_MANAGED = 3,
    WEIR_KIND_ARRAY = 4,      // arrays and mipmapped arrays
    WEIR_KIND_POOL = 5,       // what memory pools have reserved
    WEIR_KIND_CREATED = 6,    // cuMemCreate: physical memory to be mapped
    WEIR_KIND_GRAPH = 7,      // what the memory nodes of graphs have reserved
    WEIR_KIND_CONTEXT = 8,    // what a context takes by itself
    WEIR_KIND_CODE = 9,       // code and global variables of modules
    WEIR_KIND_LIMIT = 10,     // heap, stack and printf buffer beyond what a context begins with
    WEIR_KIND_IMPORTED = 11,  // memory of unknown origin, imported
    WEIR_KIND_MOVABLE = 12,   // plain or pitched memory that can be swapped out
};

// Of REQUEST.
enum weir_request_flag {
    // Movable memory had since before this connection, declared anew after WELCOME: cannot be
    // refused, has no answer. The DROP that says that all is declared says it of this, too.
    WEIR_REQUEST_AGAIN = 1 << 0,
};

enum weir_verdict_code {
    WEIR_GRANTED = 1,      // granted_bytes belongs to the asking thread, outside the credit word
    WEIR_OVER_CAP = 2,     // charges + request > cap, after all unused credit was recalled
    WEIR_NO_SUCH_GPU = 3,  // the index names no GPU of the control page
    // IMPORT: its exporter's container is charged, nothing is taken. EXPORT: the key is another's,
    // nothing was moved.
    WEIR_CHARGED_ELSEWHERE = 4,
    WEIR_OVER_SWAP = 5,  // MOVABLE: the container would have more than its cap and swap together
    WEIR_HOST_FULL = 6,  // MOVABLE: the node's movable memory would be more than the host takes
};

// Of EXPORT, IMPORT and DROP.
enum weir_share_flag {
    // Had since before this connection and declared anew after HELLO; has no answer. A DROP with
    // it, all else zero: all is declared, and what was not named again is had no more.
    WEIR_SHARE_AGAIN = 1 << 0,
};

// Of a GPU in the control page.
enum weir_gpu_flag {
    WEIR_GPU_COUNT_CONTEXT = 1 << 0,  // contexts, code and limits count against the cap
    WEIR_GPU_VIRTUAL = 1 << 1,        // reports of memory show the cap and swap together
};

enum weir_close_reason {
    WEIR_CLOSE_PROTOCOL = 1,  // unknown type, bad length, out of order, or a field out of range
    WEIR_CLOSE_VERSION = 2,   // no common ABI version
    WEIR_CLOSE_IDENTITY = 3,  // the peer is not a process of this container
    WEIR_CLOSE_PAGE = 4,      // the usage page claims more than was granted
    WEIR_CLOSE_LIMIT = 5,     // too many sessions
    WEIR_CLOSE_SHUTDOWN = 6,  // the agent is stopping: reconnect with back-off
};

// Of CLOSE.
enum weir_close_flag {
    WEIR_CLOSE_PASS = 1 << 0,  // the process is to run without caps: so the configuration has it
};

// Of WELCOME.
enum weir_welcome_flag {
    WEIR_WELCOME_PASS = 1 << 0,   // the same, if the library cannot use the pages
    WEIR_WELCOME_PLAIN = 1 << 1,  // its executable has tried to export: nothing is to be movable
};

enum weir_note_code {
    WEIR_NOTE_REFUSED = 1,  // allocation refused without the agent (away); a = gpu, b = bytes
    WEIR_NOTE_DRIVER_OOM =
        2,  // the driver itself was out of memory below the cap; a = gpu, b = bytes
    WEIR_NOTE_UNKNOWN_GPU = 3,  // a device that the control page does not list; a = ordinal
    WEIR_NOTE_FORKED = 4,       // this process is a fork of one that used CUDA
    WEIR_NOTE_BAD_PAGE =
        5,  // a page of WELCOME is not to be used; a = enum weir_bad_page, b = its ABI
    WEIR_NOTE_BOUND = 6,  // refused by a bound of the library's own; a = enum weir_bound, b = it
    // There is swap, and this process's memory stays plain; a = enum weir_plain_reason, b = enum
    // weir_exporter. Once a process.
    WEIR_NOTE_UNCONVERTED = 7,
    // What plain memory can and movable memory cannot; a = enum weir_exported. Once a process: the
    // agent remembers its executable.
    WEIR_NOTE_EXPORTED = 8,
};

// Why a process has no movable memory.
enum weir_plain_reason {
    WEIR_PLAIN_CARD = 1,      // a card that it sees has no concurrent managed access
    WEIR_PLAIN_PEERS = 2,     // it sees cards that have no access to each other
    WEIR_PLAIN_LIBRARY = 3,   // it has a library that exports memory
    WEIR_PLAIN_EXPORTED = 4,  // its executable has tried to export
    WEIR_PLAIN_DRIVER = 5,    // the driver lacks a call that moving needs
    WEIR_PLAIN_REASONS = 6,
};

// Libraries that export memory.
enum weir_exporter {
    WEIR_EXPORTER_UCX = 1,
    WEIR_EXPORTER_NVSHMEM = 2,
    WEIR_EXPORTER_NCCL = 3,  // counts where the process sees several cards
};

// What was tried with movable memory.
enum weir_exported {
    WEIR_EXPORTED_IPC = 1,           // cuIpcGetMemHandle
    WEIR_EXPORTED_RANGE = 2,         // cuMemGetHandleForAddressRange
    WEIR_EXPORTED_STREAM_VALUE = 3,  // cuStreamWaitValue, cuStreamWriteValue, cuStreamBatchMemOp
    WEIR_EXPORTEDS = 4,
};

// What the library keeps account of up to a bound, beyond which it refuses more.
enum weir_bound {
    WEIR_BOUND_POOLS = 1,     // memory pools, and devices' graph memory
    WEIR_BOUND_CONTEXTS = 2,  // contexts, or contexts with memory
    WEIR_BOUND_HANDLES = 3,   // handles of physical memory, or mappings of it
    WEIR_BOUND_SHARES = 4,    // pieces of memory that other processes may have
    WEIR_BOUND_NESTING = 5,   // graphs in graphs
    WEIR_BOUND_GRAPHS = 6,    // executable graphs with memory nodes
    WEIR_BOUND_BYTES = 7,     // of one request
    WEIR_BOUNDS = 8,
};

enum weir_bad_page {
    WEIR_BAD_PAGE_FILE = 1,      // not a file of WEIR_PAGE_BYTES
    WEIR_BAD_PAGE_SEALS = 2,     // seals are missing
    WEIR_BAD_PAGE_CONTENTS = 3,  // no page of this version, or not the one that WELCOME means
};

// Every message begins so. `seq` of an answer is that of its question; questions never use 0.
struct weir_header {
    uint16_t type;   // enum weir_msg_type
    uint16_t bytes;  // length of the whole message
    uint32_t seq;
};

// What a session holds on one GPU, as it declares it anew after a reconnect.
struct weir_held {
    uint8_t uuid[16];
    // Charged bytes of its live allocations, unused credit not included. 0 in a first HELLO: it is
    // about to hold something there, so the agent may lend it credit for that at once.
    uint64_t bytes;
};

struct weir_hello {
    struct weir_header header;
    uint32_t magic;  // WEIR_HELLO_MAGIC
    uint16_t abi_oldest;
    uint16_t abi_newest;
    uint32_t driver_version;  // as cuDriverGetVersion gives it; 0 where not known
    uint32_t pid;             // as the process sees itself (its own pid namespace); for display
    uint64_t session;         // 0, or the id of this process's previous session
    uint64_t usage_inode;     // 0, or the inode of the previous session's usage page
    uint32_t held_count;      // entries of `held` in use
    uint32_t reserved;        // zero
    char library[32];         // version of the library, zero-terminated
    char program[64];         // base name of the executable, zero-terminated
    struct weir_held held[WEIR_GPUS_MAX];
};

struct weir_welcome {
    struct weir_header header;
    uint16_t abi;
    uint16_t gpu_count;
    uint32_t
        agent_wait_ms;  // how long an allocation waits for an absent agent before it is refused
    uint64_t session;
    uint32_t page_bytes;  // WEIR_PAGE_BYTES
    uint32_t flags;       // enum weir_welcome_flag
};

struct weir_request {
    struct weir_header header;
    uint32_t gpu;    // index into the control page
    uint32_t kind;   // enum weir_kind
    uint64_t bytes;  // what is missing for this allocation, in charge units' bytes; never 0
    // MOVABLE: its number, the session's own, which is never used again. Other kinds: 0.
    uint64_t id;
    // AGAIN: so much of it, from its beginning, is on the card, by what moves were answered.
    uint64_t here_bytes;
    uint32_t flags;  // enum weir_request_flag
    uint32_t reserved;
};

struct weir_verdict {
    struct weir_header header;
    uint32_t verdict;  // enum weir_verdict_code
    uint32_t gpu;
    uint64_t granted_bytes;  // equals what was asked, or 0
    uint64_t charged_bytes;  // of the container on this GPU, after the verdict
    uint64_t cap_bytes;
};

struct weir_query {
    struct weir_header header;
    uint32_t gpu;
    uint32_t reserved;
};

struct weir_answer {
    struct weir_header header;
    uint32_t gpu;
    uint32_t reserved;
    uint64_t
        free_bytes;  // what one allocation of this session could still get, own credit included
    uint64_t cap_bytes;
    // What the container uses there, movable memory included and unused credit not.
    uint64_t used_bytes;
};

// Contexts take memory that no call names. The library asks once it has made the first on a GPU of
// which the control page says nothing.
struct weir_measure {
    struct weir_header header;
    uint32_t gpu;
    uint32_t contexts;     // that this process has on the GPU: 1 to WEIR_CONTEXTS_MAX
    uint64_t other_bytes;  // what it holds there beside them, in charge units' bytes
};

struct weir_measured {
    struct weir_header header;
    uint32_t gpu;
    uint32_t reserved;
    uint64_t context_bytes;  // of one context; 0: not to be found out
};

// Names shared memory across processes: equal for the exporter and all importers. What it is made
// of depends on the kind of handle.
struct weir_share_key {
    uint8_t bytes[32];
};

// An EXPORT moves `bytes` out of what the session was granted: they stay charged to its container
// until no session has the piece any more, its exporter or an importer. An IMPORT comes before the
// driver is called, which alone knows how much it is. Where nobody is known to have exported the
// key, the importer charges itself: with a REQUEST, once it knows.
struct weir_share {
    struct weir_header header;
    uint32_t gpu;    // UINT32_MAX where it is not known, as of an IMPORT
    uint32_t flags;  // enum weir_share_flag
    uint64_t bytes;  // 0 where they are not known, as of an IMPORT
    struct weir_share_key key;
};

struct weir_shared {
    struct weir_header header;
    uint32_t verdict;  // enum weir_verdict_code; IMPORT, GRANTED: nobody is known to be charged
    uint32_t gpu;      // of the piece
    uint64_t bytes;    // of the piece, where the agent knows it; else 0
};

// WANT, LOOK, DRAINED, PROGRESS and IDLE, all without an answer. `lease` is the number of the lease
// word that the sender saw or means: what comes with a number that is out of date is ignored.
struct weir_turn {
    struct weir_header header;
    uint32_t gpu;
    uint32_t lease;
    uint32_t waiting;  // DRAINED, PROGRESS: threads that wait at the gate; else 0
    uint32_t reserved;
};

// Of a move.
enum weir_move_flag {
    WEIR_MOVE_OUT = 1 << 0,     // to the host; else to the card
    WEIR_MOVE_FRESH = 1 << 1,   // to the card: it was never touched, so there is nothing to bring
    WEIR_MOVE_CANCEL = 1 << 2,  // do not begin the move of this number, all else is zero
};

struct weir_move_entry {
    uint64_t move;  // its number; never 0
    uint64_t id;    // of the allocation, as its REQUEST had it
    uint64_t offset;
    uint64_t bytes;
    uint32_t flags;  // enum weir_move_flag
    uint32_t reserved;
};

// Each move has its number in one entry of one MOVED, also one that was cancelled and one of memory
// that was freed; but for those of a connection that ends.
struct weir_move {
    struct weir_header header;
    uint32_t gpu;
    uint32_t count;  // entries in use; the others are zero
    struct weir_move_entry entries[WEIR_MOVES_MAX];
};

enum weir_move_result {
    WEIR_MOVE_DONE = 1,
    WEIR_MOVE_UNDONE = 2,  // cancelled before it began, or its memory is freed
    WEIR_MOVE_FAILED = 3,  // the driver refused it
};

struct weir_moved_entry {
    uint64_t move;
    uint32_t result;  // enum weir_move_result
    uint32_t ns;      // DONE: the driver's time for it alone; UINT32_MAX where it is longer
};

struct weir_moved {
    struct weir_header header;
    uint32_t gpu;
    uint32_t count;
    struct weir_moved_entry entries[WEIR_MOVED_MAX];
};

// USED and FREED, both without an answer. USED with no entries: kernels have run, and what they
// used is not known. FREED also gives back what a REQUEST was granted and was not allocated.
struct weir_named {
    struct weir_header header;
    uint32_t gpu;
    uint32_t count;
    uint64_t ids[WEIR_NAMED_MAX];
};

struct weir_note {
    struct weir_header header;
    uint32_t code;  // enum weir_note_code
    uint32_t a;
    uint64_t b;
};

struct weir_close {
    struct weir_header header;
    uint32_t reason;  // enum weir_close_reason
    uint32_t flags;   // enum weir_close_flag
    char text[96];    // zero-terminated, names what was wrong
};

// One GPU of the control page. `sequence` is odd while the agent writes the words after it.
struct weir_gpu_control {
    uint8_t uuid[16];  // constant for the life of the page
    uint32_t sequence;
    uint32_t holders;        // sessions of the container with a charge on this GPU
    uint64_t cap_bytes;      // WEIR_UNLIMITED or bytes
    uint64_t charged_bytes;  // of all sessions: what they hold and what credit they have
    uint64_t context_bytes;  // what one context takes; 0 while not known
    uint32_t flags;          // enum weir_gpu_flag
    uint32_t padding;
    // Futex. Bit 0 (WEIR_LEASE_CLOSED): launches are to wait. The rest is the number of the lease,
    // which changes with each grant and with each end of a drain. 0: there are no leases.
    uint32_t lease;
    // What may be in flight of one process, in us of expected work; 0: as much as it likes.
    uint32_t window_us;
    uint32_t wait_ms_max;  // the longest that a launch waits at the gate before it goes through
    uint32_t turns;        // enum weir_turns: what the agent wants to hear of this GPU
    uint64_t swap_bytes;  // what the container may have beyond its cap; 0: nothing is to be movable
    uint64_t piece_bytes;  // offsets of moves are multiples of it
    // Of all sessions: movable memory, wherever it lies. Under `sequence`, as is swap_bytes.
    uint64_t movable_bytes;
    uint64_t reserved[4];
};

// Of a GPU in the control page.
enum weir_turns {
    WEIR_TURNS_ALONE = 0,   // nobody else uses the GPU: IDLE may come late
    WEIR_TURNS_RIVALS = 1,  // IDLE as soon as there is nothing to do
    WEIR_TURNS_BESIDE = 2,  // the same; and others' work runs beside this container's lease
};

// Agent -> library; one memfd a container, sealed SHRINK|GROW|FUTURE_WRITE|SEAL.
struct weir_control_page {
    uint32_t magic;  // WEIR_CONTROL_MAGIC
    uint32_t abi;
    uint32_t gpu_count;
    uint32_t ended;  // futex; 1 once this page is out of date, set before the agent lets go of it
    uint64_t generation;
    uint64_t reserved[13];
    struct weir_gpu_control gpus[WEIR_GPUS_MAX];
};

// One GPU of the usage page.
struct weir_gpu_usage {
    // Bytes granted to this session and not in use. Taken by compare-and-swap from either side:
    // the library takes for an allocation and gives back at a free, the agent adds and recalls.
    uint64_t credit_bytes;
    // Counts the agent's own changes of credit_bytes, in one step with them (a 16-byte exchange),
    // so that a new agent knows which of them its predecessor made. The library leaves it alone.
    uint64_t moves;
    // Written by the library, of its charge: for display, contexts, and code, globals and limits.
    uint64_t context_bytes;
    uint64_t code_bytes;
    // What pools of its that others may have imported have reserved. When the process ends, so much
    // at most is still held by those.
    uint64_t pooled_bytes;
    // Of GPU time, written by the library. `active` is set with the first launch after a rest, by
    // the thread that launches, and cleared before IDLE; the others, by the helper, count since the
    // process began and go up only.
    uint32_t active;
    uint32_t waiting;    // threads at the gate
    uint64_t submitted;  // launches and others that are gated, and that have gone through
    uint64_t completed;  // of them, how many are known to be done
    uint64_t work_ns;    // what all that was submitted is expected to take
    uint64_t busy_ns;    // with anything outstanding, of CLOCK_MONOTONIC
    uint64_t ungated;    // of those submitted, how many went through a closed gate
    uint64_t reserved[5];
};

// Library <-> agent; one memfd a session, made and sealed (SHRINK|GROW|SEAL) by the agent.
struct weir_usage_page {
    uint32_t magic;  // WEIR_USAGE_MAGIC
    uint32_t abi;
    uint64_t session;
    uint64_t reserved[14];
    struct weir_gpu_usage gpus[WEIR_GPUS_MAX];
};

#define WEIR_ASSERT_AT(type, field, at)                                                            \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field " moved")
#define WEIR_ASSERT_SIZE(type, bytes)                                                              \
    _Static_assert(sizeof(struct type) == (bytes), #type " resized")

WEIR_ASSERT_SIZE(weir_header, 8);
WEIR_ASSERT_AT(weir_hello, magic, 8);
WEIR_ASSERT_AT(weir_hello, driver_version, 16);
WEIR_ASSERT_AT(weir_hello, session, 24);
WEIR_ASSERT_AT(weir_hello, usage_inode, 32);
WEIR_ASSERT_AT(weir_hello, held_count, 40);
WEIR_ASSERT_AT(weir_hello, library, 48);
WEIR_ASSERT_AT(weir_hello, program, 80);
WEIR_ASSERT_AT(weir_hello, held, 144);
WEIR_ASSERT_AT(weir_held, bytes, 16);
WEIR_ASSERT_SIZE(weir_held, 24);
WEIR_ASSERT_SIZE(weir_hello, 144 + 24 * WEIR_GPUS_MAX);
WEIR_ASSERT_AT(weir_welcome, abi, 8);
WEIR_ASSERT_AT(weir_welcome, agent_wait_ms, 12);
WEIR_ASSERT_AT(weir_welcome, session, 16);
WEIR_ASSERT_AT(weir_welcome, page_bytes, 24);
WEIR_ASSERT_SIZE(weir_welcome, 32);
WEIR_ASSERT_AT(weir_request, gpu, 8);
WEIR_ASSERT_AT(weir_request, kind, 12);
WEIR_ASSERT_AT(weir_request, bytes, 16);
WEIR_ASSERT_AT(weir_request, id, 24);
WEIR_ASSERT_AT(weir_request, flags, 40);
WEIR_ASSERT_SIZE(weir_request, 48);
WEIR_ASSERT_AT(weir_verdict, verdict, 8);
WEIR_ASSERT_AT(weir_verdict, granted_bytes, 16);
WEIR_ASSERT_AT(weir_verdict, charged_bytes, 24);
WEIR_ASSERT_AT(weir_verdict, cap_bytes, 32);
WEIR_ASSERT_SIZE(weir_verdict, 40);
WEIR_ASSERT_SIZE(weir_query, 16);
WEIR_ASSERT_AT(weir_answer, free_bytes, 16);
WEIR_ASSERT_AT(weir_answer, cap_bytes, 24);
WEIR_ASSERT_AT(weir_answer, used_bytes, 32);
WEIR_ASSERT_SIZE(weir_answer, 40);
WEIR_ASSERT_AT(weir_turn, lease, 12);
WEIR_ASSERT_AT(weir_turn, waiting, 16);
WEIR_ASSERT_SIZE(weir_turn, 24);
WEIR_ASSERT_AT(weir_move_entry, bytes, 24);
WEIR_ASSERT_AT(weir_move_entry, flags, 32);
WEIR_ASSERT_SIZE(weir_move_entry, 40);
WEIR_ASSERT_AT(weir_move, count, 12);
WEIR_ASSERT_AT(weir_move, entries, 16);
WEIR_ASSERT_SIZE(weir_move, 16 + 40 * WEIR_MOVES_MAX);
WEIR_ASSERT_AT(weir_moved_entry, result, 8);
WEIR_ASSERT_SIZE(weir_moved_entry, 16);
WEIR_ASSERT_AT(weir_moved, entries, 16);
WEIR_ASSERT_SIZE(weir_moved, 16 + 16 * WEIR_MOVED_MAX);
WEIR_ASSERT_AT(weir_named, count, 12);
WEIR_ASSERT_AT(weir_named, ids, 16);
WEIR_ASSERT_SIZE(weir_named, 16 + 8 * WEIR_NAMED_MAX);
WEIR_ASSERT_AT(weir_note, code, 8);
WEIR_ASSERT_AT(weir_note, b, 16);
WEIR_ASSERT_SIZE(weir_note, 24);
WEIR_ASSERT_AT(weir_measure, contexts, 12);
WEIR_ASSERT_AT(weir_measure, other_bytes, 16);
WEIR_ASSERT_SIZE(weir_measure, 24);
WEIR_ASSERT_AT(weir_measured, context_bytes, 16);
WEIR_ASSERT_SIZE(weir_measured, 24);
WEIR_ASSERT_AT(weir_share, flags, 12);
WEIR_ASSERT_AT(weir_share, bytes, 16);
WEIR_ASSERT_AT(weir_share, key, 24);
WEIR_ASSERT_SIZE(weir_share, 56);
WEIR_ASSERT_AT(weir_shared, verdict, 8);
WEIR_ASSERT_AT(weir_shared, bytes, 16);
WEIR_ASSERT_SIZE(weir_shared, 24);
WEIR_ASSERT_AT(weir_close, reason, 8);
WEIR_ASSERT_AT(weir_close, text, 16);
WEIR_ASSERT_SIZE(weir_close, 112);
WEIR_ASSERT_AT(weir_gpu_control, sequence, 16);
WEIR_ASSERT_AT(weir_gpu_control, holders, 20);
WEIR_ASSERT_AT(weir_gpu_control, cap_bytes, 24);
WEIR_ASSERT_AT(weir_gpu_control, charged_bytes, 32);
WEIR_ASSERT_AT(weir_gpu_control, context_bytes, 40);
WEIR_ASSERT_AT(weir_gpu_control, flags, 48);
WEIR_ASSERT_AT(weir_gpu_control, lease, 56);
WEIR_ASSERT_AT(weir_gpu_control, turns, 68);
WEIR_ASSERT_AT(weir_gpu_control, swap_bytes, 72);
WEIR_ASSERT_AT(weir_gpu_control, movable_bytes, 88);
WEIR_ASSERT_SIZE(weir_gpu_control, 128);
WEIR_ASSERT_AT(weir_control_page, gpu_count, 8);
WEIR_ASSERT_AT(weir_control_page, ended, 12);
WEIR_ASSERT_AT(weir_control_page, generation, 16);
WEIR_ASSERT_AT(weir_control_page, gpus, 128);
WEIR_ASSERT_SIZE(weir_control_page, 128 + 128 * WEIR_GPUS_MAX);
_Static_assert(offsetof(struct weir_usage_page, gpus[0].credit_bytes) % 16 == 0,
               "credit and moves");
WEIR_ASSERT_AT(weir_gpu_usage, moves, 8);
WEIR_ASSERT_AT(weir_gpu_usage, context_bytes, 16);
WEIR_ASSERT_AT(weir_gpu_usage, pooled_bytes, 32);
WEIR_ASSERT_AT(weir_gpu_usage, active, 40);
WEIR_ASSERT_AT(weir_gpu_usage, submitted, 48);
WEIR_ASSERT_AT(weir_gpu_usage, ungated, 80);
WEIR_ASSERT_SIZE(weir_gpu_usage, 128);
WEIR_ASSERT_AT(weir_usage_page, session, 8);
WEIR_ASSERT_AT(weir_usage_page, gpus, 128);
WEIR_ASSERT_SIZE(weir_usage_page, 128 + 128 * WEIR_GPUS_MAX);
_Static_assert(sizeof(struct weir_control_page) <= WEIR_PAGE_BYTES, "control page too long");
_Static_assert(sizeof(struct weir_usage_page) <= WEIR_PAGE_BYTES, "usage page too long");
_Static_assert(sizeof(struct weir_hello) <= WEIR_MSG_BYTES_MAX, "HELLO too long");
_Static_assert(sizeof(struct weir_named) <= WEIR_MSG_BYTES_MAX, "USED too long");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weir's messages are little-endian");

#endif
