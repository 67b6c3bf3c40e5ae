// share_test.c: random sequences of create, export, import, map, unmap, release, of plain memory
// and its handles likewise, by three processes that are killed now and then, at rest or in the
// middle of something. After every step the machine's books are what a model says, to the byte:
// what is used, and who answers for it; what fits is given, what does not is refused; and everybody
// who has mapped a piece of memory reads what was last written to it. SEED and SEQUENCES as
// environment.
#define _GNU_SOURCE
#include "test.h"
#include "test_child.h"
#include "test_machine.h"
#include "test_share.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define CONTEXT_BYTES (2 * MIB)
#define TOTAL (64 * MIB)
#define UNIT (32u << 10)  // the granularity of the test's machine

enum {
    PROCESSES = 3,
    PIECES = 12,  // of memory, at once
    STEPS = 40,
    MAPS_MAX = 3,
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SEQUENCES 100
#else
#define SEQUENCES 1000
#endif

static struct sim_machine *machine;

// One page that all share: the handles of plain memory, by piece.
static CUipcMemHandle *handles;
static int sockets[PROCESSES][2];

// ---- A process that does as it is told ----

enum order {
    CREATE,  // piece, bytes -> result
    EXPORT,  // piece; the descriptor by the socket
    IMPORT,  // piece; the descriptor by the socket -> result
    MAP,     // piece, bytes
    UNMAP,   // piece, bytes
    RELEASE,
    ALLOC,  // piece, bytes -> result
    NAME,   // piece; the handle in the page
    OPEN,   // piece -> result
    CLOSE,
    FREE,
    WRITE,  // piece, value
    READ,   // piece -> value
};

struct own {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at[MAPS_MAX];
    unsigned maps;
};

static uint64_t create(struct own *own, size_t bytes) {
    CUmemAllocationProp p = shareable(0);
    return cuMemCreate(&own->handle, bytes, &p, 0);
}

static uint64_t import(struct own *own, int socket) {
    int fd = receive_fd(socket);
    uint64_t rc = cuMemImportFromShareableHandle(&own->handle, (void *)(intptr_t)fd,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    return rc;
}

static uint64_t obey(struct own *own, unsigned piece, enum order order, uint64_t a, int socket) {
    uint32_t word = (uint32_t)a;
    int fd;
    switch (order) {
    case CREATE:
        return create(own, a);
    case EXPORT:
        OK(cuMemExportToShareableHandle(&fd, own->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        0));
        send_fd(socket, fd);
        close(fd);
        return 0;
    case IMPORT:
        return import(own, socket);
    case MAP:
        own->at[own->maps++] = map_all(own->handle, a);
        return 0;
    case UNMAP:
        own->maps--;
        OK(cuMemUnmap(own->at[own->maps], a));
        OK(cuMemAddressFree(own->at[own->maps], a));
        return 0;
    case RELEASE:
        return cuMemRelease(own->handle);
    case ALLOC:
        return cuMemAlloc_v2(&own->at[0], a);
    case NAME:
        return cuIpcGetMemHandle(&handles[piece], own->at[0]);
    case OPEN:
        return cuIpcOpenMemHandle_v2(&own->at[0], handles[piece], 1);
    case CLOSE:
        return cuIpcCloseMemHandle(own->at[0]);
    case FREE:
        return cuMemFree_v2(own->at[0]);
    case WRITE:
        return cuMemcpyHtoD_v2(own->at[0] + 64, &word, 4);
    case READ:
        OK(cuMemcpyDtoH_v2(&word, own->at[own->maps ? own->maps - 1 : 0] + 64, 4));
        return word;
    }
    return UINT64_MAX;
}

static void serve(uint64_t number) {
    static struct own own[PIECES];
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    tell(0);
    for (;;) {
        uint64_t order = listen_word(), piece = listen_word(), a = listen_word();
        tell(obey(&own[piece], (unsigned)piece, (enum order)order, a, sockets[number][1]));
    }
}

// ---- The model ----

// What a process has of a piece.
struct stake {
    unsigned handles;  // or the allocation, or how often it is opened
    unsigned maps;
    uint64_t since;  // when it came to have it
};

static struct piece {
    uint64_t bytes;  // 0: there is none
    bool plain;
    int fd;          // of virtual memory, once it was exported; -1
    bool named;      // of plain memory
    unsigned maker;  // its process
    uint32_t value;
    bool written;
    struct stake stakes[PROCESSES];
} pieces[PIECES];

static struct child processes[PROCESSES];
static uint64_t clock_now;

static bool has(const struct piece *piece, unsigned process) {
    return piece->stakes[process].handles || piece->stakes[process].maps;
}

static bool anybody_has(const struct piece *piece) {
    for (unsigned i = 0; i < PROCESSES; i++)
        if (has(piece, i))
            return true;
    return false;
}

static uint64_t model_used(void) {
    uint64_t sum = PROCESSES * CONTEXT_BYTES;
    for (unsigned i = 0; i < PIECES; i++)
        sum += anybody_has(&pieces[i]) ? pieces[i].bytes : 0;
    return sum;
}

// Who answers for a piece: of those who have it, the one that has for longest.
static unsigned owner_of(const struct piece *piece) {
    unsigned owner = PROCESSES;
    for (unsigned i = 0; i < PROCESSES; i++)
        if (has(piece, i) &&
            (owner == PROCESSES || piece->stakes[i].since < piece->stakes[owner].since))
            owner = i;
    return owner;
}

static void check_books(void) {
    uint64_t used;
    CHECK_EQ(sim_memory_used(machine, 0, &used), 0);
    CHECK_EQ(used, model_used());
}

static void check_owners(void) {
    uint64_t own[PROCESSES] = {0}, imported[PROCESSES] = {0};
    for (unsigned i = 0; i < PIECES; i++)
        for (unsigned p = 0; p < PROCESSES; p++)
            if (has(&pieces[i], p))
                *(owner_of(&pieces[i]) == p ? &own[p] : &imported[p]) += pieces[i].bytes;
    struct sim_process_state state;
    for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
        for (unsigned p = 0; p < PROCESSES; p++)
            if (state.alive && state.pid == processes[p].pid) {
                CHECK_EQ(state.gpus[0].allocated_bytes, own[p]);
                CHECK_EQ(state.gpus[0].imported_bytes, imported[p]);
                CHECK_EQ(state.gpus[0].context_bytes, CONTEXT_BYTES);
            }
}

static void ask(unsigned process, enum order order, unsigned piece, uint64_t a) {
    say(processes[process], order);
    say(processes[process], piece);
    say(processes[process], a);
}

static uint64_t order(unsigned process, enum order order, unsigned piece, uint64_t a) {
    ask(process, order, piece, a);
    return hear(processes[process]);
}

static void begin(unsigned process) {
    processes[process] = spawn(serve, process);
    hear(processes[process]);
}

// ---- Steps ----

static void hold(struct piece *piece, unsigned process) {
    if (!has(piece, process))
        piece->stakes[process].since = ++clock_now;
}

// What nobody can get at any more is forgotten.
static void forget(struct piece *piece) {
    if (anybody_has(piece) || (piece->fd >= 0 && rand() % 2))
        return;
    if (piece->fd >= 0)
        close(piece->fd);
    *piece = (struct piece){.fd = -1};
}

static bool fits(uint64_t bytes) {
    return model_used() + bytes <= TOTAL;
}

static void make(unsigned process, unsigned number) {
    struct piece *piece = &pieces[number];
    bool plain = rand() % 2;
    unsigned units = 1 + (unsigned)rand() % (rand() % 4 ? 20 : 500);
    uint64_t bytes =
        plain ? 512 * (uint64_t)(units * 60 - (unsigned)rand() % 60) : UNIT * (uint64_t)units;
    bool fit = fits(bytes);
    uint64_t rc = order(process, plain ? ALLOC : CREATE, number, bytes);
    CHECK_EQ(rc, fit ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (!fit)
        return;
    hold(piece, process);
    piece->bytes = bytes;
    piece->plain = plain;
    piece->maker = process;
    piece->stakes[process].handles = 1;
}

static void step_plain(unsigned process, unsigned number) {
    struct piece *piece = &pieces[number];
    struct stake *stake = &piece->stakes[process];
    bool maker = piece->maker == process;
    if (maker && stake->handles) {
        if (rand() % 3) {
            CHECK_EQ(order(process, NAME, number, 0), CUDA_SUCCESS);
            piece->named = true;
        } else {
            CHECK_EQ(order(process, FREE, number, 0), CUDA_SUCCESS);
            stake->handles = 0;
        }
    } else if (!maker && stake->handles && rand() % 3 == 0) {
        CHECK_EQ(order(process, CLOSE, number, 0), CUDA_SUCCESS);
        stake->handles--;
    } else if (!maker && piece->named) {
        // Only while its maker has the file can anybody come to it who is not there yet.
        bool can = stake->handles || has(piece, piece->maker);
        CHECK_EQ(order(process, OPEN, number, 0), can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
        if (can) {
            hold(piece, process);
            stake->handles++;
        }
    }
}

static void step_import(unsigned process, unsigned number) {
    struct piece *piece = &pieces[number];
    bool can = anybody_has(piece) || fits(piece->bytes);
    send_fd(sockets[process][0], piece->fd);
    CHECK_EQ(order(process, IMPORT, number, 0), can ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (!can)
        return;
    hold(piece, process);
    piece->stakes[process].handles++;
}

static void step_virtual(unsigned process, unsigned number) {
    struct piece *piece = &pieces[number];
    struct stake *stake = &piece->stakes[process];
    switch (rand() % 5) {
    case 0:
        if (piece->fd < 0 && stake->handles) {
            CHECK_EQ(order(process, EXPORT, number, 0), CUDA_SUCCESS);
            piece->fd = receive_fd(sockets[process][0]);
        }
        break;
    case 1:
        if (piece->fd >= 0)
            step_import(process, number);
        break;
    case 2:
        if (stake->handles && stake->maps < MAPS_MAX) {
            CHECK_EQ(order(process, MAP, number, piece->bytes), CUDA_SUCCESS);
            stake->maps++;
        }
        break;
    case 3:
        if (stake->maps) {
            CHECK_EQ(order(process, UNMAP, number, piece->bytes), CUDA_SUCCESS);
            stake->maps--;
        }
        break;
    case 4:
        if (stake->handles) {
            CHECK_EQ(order(process, RELEASE, number, 0), CUDA_SUCCESS);
            stake->handles--;
        }
        break;
    }
}

static void step_data(unsigned process, unsigned number) {
    struct piece *piece = &pieces[number];
    struct stake *stake = &piece->stakes[process];
    bool mapped = piece->plain ? stake->handles : stake->maps;
    if (!mapped)
        return;
    if (rand() % 2) {
        piece->value = (uint32_t)rand();
        piece->written = true;
        CHECK_EQ(order(process, WRITE, number, piece->value), CUDA_SUCCESS);
    } else if (piece->written) {
        CHECK_EQ(order(process, READ, number, 0), piece->value);
    }
}

// Kills a process, perhaps in the middle of something that can be of no use to anybody else.
static void step_kill(unsigned process) {
    if (rand() % 2) {
        for (unsigned i = 0; i < PIECES; i++)
            if (pieces[i].stakes[process].handles) {
                if (pieces[i].plain)
                    ask(process, pieces[i].maker == process ? NAME : CLOSE, i, 0);
                else
                    ask(process, RELEASE, i, 0);
                break;
            }
        sleep_us((unsigned)rand() % 300);
    }
    kill_now(processes[process]);
    close(processes[process].to);
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i].stakes[process] = (struct stake){0};
        if (pieces[i].bytes)
            forget(&pieces[i]);
    }
    begin(process);
}

static void step(void) {
    unsigned process = (unsigned)rand() % PROCESSES, number = (unsigned)rand() % PIECES;
    struct piece *piece = &pieces[number];
    if (rand() % 60 == 0)
        step_kill(process);
    else if (!piece->bytes)
        make(process, number);
    else if (rand() % 3 == 0)
        step_data(process, number);
    else if (piece->plain)
        step_plain(process, number);
    else
        step_virtual(process, number);
    if (piece->bytes)
        forget(piece);
}

// One sequence begins with three processes that have nothing, and ends with none.
static void sequence(void) {
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = (struct piece){.fd = -1};
    for (unsigned i = 0; i < STEPS; i++) {
        step();
        check_books();
        if (i % 8 == 0)
            check_owners();
    }
    check_owners();
    // All let go of all, in one way or the other.
    for (unsigned p = 0; p < PROCESSES; p++)
        for (unsigned i = 0; i < PIECES; i++) {
            struct stake *stake = &pieces[i].stakes[p];
            for (; stake->maps; stake->maps--)
                CHECK_EQ(order(p, UNMAP, i, pieces[i].bytes), CUDA_SUCCESS);
            for (; stake->handles; stake->handles--)
                CHECK_EQ(order(p,
                               !pieces[i].plain       ? RELEASE
                               : pieces[i].maker == p ? FREE
                                                      : CLOSE,
                               i, 0),
                         CUDA_SUCCESS);
        }
    check_books();
    for (unsigned i = 0; i < PIECES; i++)
        if (pieces[i].fd >= 0)
            close(pieces[i].fd);
}

static void sequences(void) {
    const char *given = getenv("SEQUENCES");
    unsigned count = given ? (unsigned)atoi(given) : SEQUENCES;
    for (unsigned i = 0; i < PROCESSES; i++)
        begin(i);
    for (unsigned i = 0; i < count; i++)
        sequence();
    for (unsigned i = 0; i < PROCESSES; i++) {
        kill_now(processes[i]);
        close(processes[i].to);
    }
    uint64_t used;
    CHECK_EQ(sim_memory_used(machine, 0, &used), 0);
    CHECK_EQ(used, 0);
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)sim_now_ns();
    printf("SEED=%u\n", seed);
    srand(seed);
    signal(SIGPIPE, SIG_IGN);
    struct sim_config config = test_config();
    machine = test_machine(&config);
    handles = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(handles != MAP_FAILED);
    for (unsigned i = 0; i < PROCESSES; i++)
        open_sockets(sockets[i]);
    static const struct test tests[] = {TEST(sequences)};
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
