// capture.h: what captures are, for capture.c and capture_api.c.
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "graph.h"

struct capture {
    struct capture *next;
    uint64_t id;
    struct graph *graph;
    bool borrowed;  // the graph is the program's
    bool invalid;
    struct stream *origin;
    CUstreamCaptureMode mode;
    uint64_t thread;  // that began it
};

// Copies a list of nodes in place of another one. False: no room.
bool nodes_set(struct nodes *to, const struct nodes *from);
// A stream is captured from now on; its next node depends on the given ones.
CUresult capture_join(struct stream *stream, struct capture *capture, const struct nodes *deps);
void capture_begin(struct capture *capture);
// Ends a capture for all its streams; its graph is the caller's where `keep`.
void capture_finish(struct capture *capture, bool keep);

#endif
