// transfer.h: what copies and sets say to the scheduler of time, whatever their form.
//
// Copies within devices wait at the gate, as sets do. Those that have an end in the host are
// counted and never held back: they are the link's work, and whoever fetches a result is to get it.
#ifndef WEIR_TRANSFER_H
#define WEIR_TRANSFER_H

#include "hooks.h"
#include "timed.h"

// What a copy or set is by its key, beside its size. No handle of a kernel is so small.
enum weir_transfer {
    WEIR_TRANSFER_DEVICE = 1,  // within devices
    WEIR_TRANSFER_PEER = 2,    // said to be from one to another
    WEIR_TRANSFER_SET = 3,
    WEIR_TRANSFER_IN = 4,   // from the host; from here on an end is in the host
    WEIR_TRANSFER_OUT = 5,  // to the host
    WEIR_TRANSFER_HOST = 6,
};

// A call's stream, and whether it is the form in which NULL is each thread's own one. The forms
// without a stream are for the default one.
struct weir_transfer_stream {
    CUstream stream;
    int per_thread;
};

// Before the driver's call; `row_bytes` is 0 where all lies in one row. Such calls wait as launches
// do, or not at all.
void weir_transfer_begin(struct weir_timed *op, enum weir_transfer kind,
                         struct weir_transfer_stream in, uint64_t bytes, uint64_t row_bytes);

// After a call without a stream: one to the host has waited for what the thread launched before it.
CUresult weir_transfer_end(struct weir_timed *op, enum weir_transfer kind, int per_thread,
                           CUresult result);

// What a copy is whose ends are on a device or not.
static inline enum weir_transfer weir_transfer_of(int to_device, int from_device) {
    if (to_device)
        return from_device ? WEIR_TRANSFER_DEVICE : WEIR_TRANSFER_IN;
    return from_device ? WEIR_TRANSFER_OUT : WEIR_TRANSFER_HOST;
}

// Whether an address is of device memory, managed memory included, by what the driver says.
int weir_transfer_on_device(CUdeviceptr address);

// Have `call` made between begin and end: without and with a stream.
#define WEIR_TRANSFER(kind, per_thread, bytes, row_bytes, call)                                    \
    ({                                                                                             \
        struct weir_timed op;                                                                      \
        weir_transfer_begin(&op, kind, (struct weir_transfer_stream){NULL, per_thread}, bytes,     \
                            row_bytes);                                                            \
        weir_transfer_end(&op, kind, per_thread, call);                                            \
    })
#define WEIR_TRANSFER_IN_STREAM(kind, stream, per_thread, bytes, row_bytes, call)                  \
    ({                                                                                             \
        struct weir_timed op;                                                                      \
        weir_transfer_begin(&op, kind, (struct weir_transfer_stream){stream, per_thread}, bytes,   \
                            row_bytes);                                                            \
        weir_timed_end(&op, call);                                                                 \
    })

#endif
