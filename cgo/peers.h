// peers.h: copies from one context's device to another's. They are the work of the current
// context's stream, and counted there; but the other devices' memory is busy, too, so they pass the
// gates of all. None is waited for inside another's (gate.h).
#ifndef WEIR_PEERS_H
#define WEIR_PEERS_H

#include "transfer.h"

struct weir_peers {
    struct weir_timed op;         // the stream's
    struct weir_timed others[2];  // the gates of the contexts' devices, where these are others
    unsigned count;
};

// Around the driver's call, as weir_transfer_begin and weir_timed_end. A context that is NULL or
// not known is taken for the current one.
void weir_peers_begin(struct weir_peers *peers, CUcontext to, CUcontext from,
                      struct weir_transfer_stream in, uint64_t bytes, uint64_t row_bytes);
CUresult weir_peers_end(struct weir_peers *peers, CUresult result);

#define WEIR_PEERS(to, from, stream, per_thread, bytes, row_bytes, call)                           \
    ({                                                                                             \
        struct weir_peers peers;                                                                   \
        weir_peers_begin(&peers, to, from, (struct weir_transfer_stream){stream, per_thread},      \
                         bytes, row_bytes);                                                        \
        weir_peers_end(&peers, call);                                                              \
    })

#endif
