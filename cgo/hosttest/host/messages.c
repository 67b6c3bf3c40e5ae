// messages.c: whatever an agent may send, to a library in which threads wait for answers of each
// kind. Nothing may be read or written where it must not, and the books must stay within what was
// owned and granted.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../client.h"
#include "../../helper.h"
#include "../../moving.h"
#include "../../share.h"
#include "driver.h"
#include "host.h"

#define OWNED_BYTES (1ull << 30)
#define PIECE_BYTES (1ull << 20)
#define MESSAGES_MAX 64

static void *page_of(uint32_t magic) {
    static char *pages[2];
    int usage = magic == WEIR_USAGE_MAGIC;
    if (!pages[usage])
        pages[usage] =
            mmap(NULL, WEIR_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(pages[usage], 0, WEIR_PAGE_BYTES);
    memcpy(pages[usage], &magic, sizeof(magic));
    return pages[usage];
}

// One thread that waits, without a thread. The place is part of the number of its question.
static void wait_for(struct weir_state *state, enum weir_msg_type type, uint32_t piece) {
    uint32_t place = state->asks_used++;
    struct weir_ask *ask = &state->asks[place];
    ask->state = WEIR_ASK_WAITING;
    ask->seq = WEIR_ASKS_MAX | place;
    ask->type = type;
    ask->gpu = place % 2;
    ask->detail = 1;
    ask->bytes = 4096;
    ask->piece = piece;
    ask->sent = 1;
    if (piece)
        weir_share_asked(state, piece, type, ask->seq);
}

static uint32_t piece_of(struct weir_state *state, uint8_t number, enum weir_piece_state as) {
    struct weir_share_key key = {{number}};
    if (as == WEIR_PIECE_SOUGHT)
        return weir_piece_new(state, &key, as);
    uint32_t piece = weir_share_take(state, &key, 0, PIECE_BYTES);
    weir_piece_at(state, piece)->state = as;
    return piece;
}

// One that is live, and one that a thread has asked for and left.
static void put_movables(struct weir_state *state, struct weir_swap *swap) {
    if (swap) {
        void *memory = swap->movables.memory;
        struct weir_mover *mover = swap->mover;
        memset(memory, 0,
               4096 * sizeof(uint32_t) + swap->movables.used * sizeof(struct weir_movable));
        if (mover)
            memset(mover, 0, sizeof(*mover));
        memset(swap, 0, offsetof(struct weir_swap, places));
        swap->state = state;
        swap->mover = mover;
        swap->movables.memory = memory;
    }
    state->swap = swap;
    swap = weir_swap_make(state);
    uint32_t live = weir_movable_new(swap, 0, 1, PIECE_BYTES);
    weir_movable_granted(swap, live);
    weir_movable_made(swap, live, (uint64_t)1 << 40);
    uint32_t asked = weir_movable_new(swap, 1, 1, PIECE_BYTES);
    wait_for(state, WEIR_MSG_REQUEST, 0);
    struct weir_ask *ask = &state->asks[state->asks_used - 1];
    ask->detail = WEIR_KIND_MOVABLE;
    ask->piece = asked;
    ask->left = 1;
}

static struct weir_state *make_state(void) {
    static struct weir_state *state;
    struct weir_swap *swap = state ? state->swap : NULL;
    struct weir_slab pieces = state ? state->pieces : (struct weir_slab){0};
    if (!state)
        state =
            mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint32_t number = 1; number <= pieces.used; number++)  // of the last input
        if (weir_piece_at(state, number)->uses || weir_piece_at(state, number)->state)
            weir_piece_end(state, number);
    pieces = state->pieces;
    memset(state, 0, sizeof(*state));
    state->pieces = pieces;
    state->mode = WEIR_MODE_ENFORCED;
    state->usage = page_of(WEIR_USAGE_MAGIC);
    state->control = page_of(WEIR_CONTROL_MAGIC);
    state->gpu_count = TEST_GPUS;
    state->page_open = 1;
    state->fd = -1;
    for (uint32_t gpu = 0; gpu < TEST_GPUS; gpu++) {
        state->gpus[gpu].known = 1;
        state->gpus[gpu].index = gpu;
        state->gpus[gpu].owned_bytes = OWNED_BYTES;
    }
    if (weir_pieces_ready(state) != 0)
        abort();
    wait_for(state, WEIR_MSG_REQUEST, 0);
    wait_for(state, WEIR_MSG_QUERY, 0);
    wait_for(state, WEIR_MSG_MEASURE, 0);
    wait_for(state, WEIR_MSG_EXPORT, piece_of(state, 1, WEIR_PIECE_ASKED));
    wait_for(state, WEIR_MSG_IMPORT, piece_of(state, 2, WEIR_PIECE_SOUGHT));
    wait_for(state, WEIR_MSG_DROP, piece_of(state, 3, WEIR_PIECE_TOLD));
    // Two whose threads have left, one of them after it let go.
    wait_for(state, WEIR_MSG_EXPORT, piece_of(state, 4, WEIR_PIECE_ASKED));
    uint32_t left = piece_of(state, 5, WEIR_PIECE_ASKED);
    wait_for(state, WEIR_MSG_EXPORT, left);
    state->asks[6].state = state->asks[7].state = WEIR_ASK_FREE;
    weir_piece_release(state, left);
    weir_piece_release(state, left);
    put_movables(state, swap);
    return state;
}

// Whether the books can still be true.
static int sane(const struct weir_state *state) {
    uint64_t in_pieces = 0;
    for (uint32_t number = 1; number <= state->pieces.used; number++)
        in_pieces += weir_piece_at(state, number)->bytes;
    return state->gpus[0].owned_bytes <= OWNED_BYTES + 4096 &&
           state->gpus[1].owned_bytes <= OWNED_BYTES + 4096 &&
           state->gpus[0].owned_bytes >= OWNED_BYTES - 4 * PIECE_BYTES &&
           in_pieces <= 8 * ((uint64_t)1 << 50) && state->pieces.live <= 5 &&
           state->swap->places_used == 1 && state->swap->movables.live <= 2;
}

int test_messages(const uint8_t *data, size_t bytes) {
    int ends[2], wrong = 0;
    struct weir_state *state = make_state();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return 1;
    uint64_t cookie = weir_sys_socket_cookie(ends[1]);
    for (int i = 0; i < MESSAGES_MAX && bytes > 2 && !wrong; i++) {
        struct weir_incoming incoming;
        size_t length = (size_t)(data[0] | data[1] << 8) % (WEIR_MSG_BYTES_MAX + 8);
        data += 2;
        bytes -= 2;
        if (length > bytes)
            length = bytes;
        if (send(ends[0], data, length, MSG_NOSIGNAL) != (ssize_t)length)
            break;
        data += length;
        bytes -= length;
        if (weir_client_receive(ends[1], cookie, &incoming) == 0)
            weir_helper_dispatch(state, &incoming);
        wrong = !sane(state);
    }
    close(ends[0]);
    close(ends[1]);
    return wrong;
}

// A message with a good head, and with fields that are mostly good.
static size_t make_message(uint8_t *to, uint64_t *seed) {
    static const struct {
        uint16_t type, bytes;
    } kinds[] = {
        {WEIR_MSG_VERDICT, sizeof(struct weir_verdict)},
        {WEIR_MSG_ANSWER, sizeof(struct weir_answer)},
        {WEIR_MSG_MEASURED, sizeof(struct weir_measured)},
        {WEIR_MSG_SHARED, sizeof(struct weir_shared)},
        {WEIR_MSG_MOVE, sizeof(struct weir_move)},
        {WEIR_MSG_CLOSE, sizeof(struct weir_close)},
        {WEIR_MSG_WELCOME, sizeof(struct weir_welcome)},
    };
    uint64_t kind = test_random(seed) % (sizeof(kinds) / sizeof(kinds[0]));
    static const uint64_t figures[] = {0, 1, 4096, PIECE_BYTES, 1ull << 50, UINT64_MAX};
    struct weir_header head = {kinds[kind].type, kinds[kind].bytes,
                               WEIR_ASKS_MAX | (uint32_t)(test_random(seed) % 9)};
    uint32_t words[2] = {(uint32_t)(test_random(seed) % 5), (uint32_t)(test_random(seed) % 3)};
    memset(to, 0, head.bytes);
    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), words, sizeof(words));
    for (size_t at = sizeof(head) + sizeof(words); at + 8 <= head.bytes; at += 8)
        memcpy(to + at, &figures[test_random(seed) % 6], 8);
    if (test_random(seed) % 8 == 0)
        to[test_random(seed) % head.bytes] ^= (uint8_t)(1u << test_random(seed) % 8);
    return head.bytes;
}

int test_messages_at_random(uint64_t seed, int rounds) {
    static uint8_t data[32 * 1024];
    for (int round = 0; round < rounds; round++) {
        size_t bytes = 0;
        for (int i = 0; i < 20; i++) {
            size_t length = make_message(data + bytes + 2, &seed);
            data[bytes] = (uint8_t)length;
            data[bytes + 1] = (uint8_t)(length >> 8);
            bytes += 2 + length;
        }
        if (test_messages(data, bytes))
            return 1;
    }
    return 0;
}
