// context.h: one context on a GPU, made without the CUDA headers or a driver to link.
#ifndef WEIR_CMD_CONTEXT_H
#define WEIR_CMD_CONTEXT_H

#include <stddef.h>

// Loads the driver that the loader finds and makes the primary context of the first GPU that it
// shows to this process, to be kept until the process ends. 0, or -1 and what failed, in `text`.
int weir_context_make(char *text, size_t bytes);

// Whether the first GPU that the driver shows to this process and the host's processors may use
// managed memory at the same time: 1 or 0; or -1 and what failed, in `text`. It makes no context.
int weir_context_concurrent_managed(char *text, size_t bytes);

#endif
