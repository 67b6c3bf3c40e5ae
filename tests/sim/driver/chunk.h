// chunk.h: what the sources of chunks (chunk.c, export.c) have between them.
#ifndef SIM_DRIVER_CHUNK_H
#define SIM_DRIVER_CHUNK_H

#include "share.h"

// A chunk without memory, with one reference; NULL: no room.
struct chunk *chunk_new(int gpu, uint64_t bytes);
void chunk_delete(struct chunk *chunk);
// The chunk at or after number *i, which becomes its own; NULL at the end.
struct chunk *chunk_next(uint32_t *i);
// Of a chunk in this process's file, the first part from *at on that may have been written; false:
// there is none.
bool chunk_written(const struct chunk *chunk, uint64_t *at, uint64_t *end);
// Gives the chunk's part of this process's file back.
void chunk_leave_home(struct chunk *chunk);

// A nameless file of that size, close-on-exec, in no number below 3. -1: there can be none.
int file_make(const char *name, uint64_t bytes, unsigned flags);
// Whether the descriptor still is that of the file: the program may close any.
bool file_is(int fd, uint64_t inode);

#endif
