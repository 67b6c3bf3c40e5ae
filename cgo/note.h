// note.h: what an operator should see and the agent cannot know by itself. Notes wait in the state
// until there is a connection, and at most one a second a GPU is sent: a program that is refused in
// a loop says so once.
#ifndef WEIR_NOTE_H
#define WEIR_NOTE_H

#include "state.h"

// Leaves a note about a GPU, by ordinal (0 where that is out of range), and sends it if it may go
// now.
void weir_note(struct weir_state *state, enum weir_note_bit note, uint32_t gpu, uint64_t bytes);

// Leaves a note that something is refused by a bound of the library's own, of so many. With the
// lock held it goes when the helper comes to it, which must have been started.
void weir_note_bound(struct weir_state *state, enum weir_bound bound, uint64_t value);

// Tells, once a process, why its memory is not movable, and of the first thing tried that movable
// memory cannot.
void weir_note_swap(struct weir_state *state);

// Sends the notes that wait and are due.
void weir_notes_send(struct weir_state *state);

// Tells, once a process, that the agent's pages cannot be used, on the connection that is about to
// be given up for that.
void weir_note_bad_page(struct weir_state *state, int fd, uint64_t cookie);

#endif
