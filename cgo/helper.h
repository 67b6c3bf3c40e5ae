// helper.h: the connection's beginning, and the one thread of the library, which hands out the
// agent's answers, connects anew and declares.
#ifndef WEIR_HELPER_H
#define WEIR_HELPER_H

#include "client.h"

// Opens the first connection, unless that is done or a thread is at it. It waits for the agent a
// tenth of a second at most. Where an answer is waited for afterwards, and at the latest once the
// program has its memory, the helper must be started, which goes on with the connection.
void weir_helper_begin(struct weir_state *state);

// Starts the helper unless there is one. 0; or ENOTSUP, or what the host's pthread_create said:
// then the agent counts as absent, and whoever waits for it tries again.
int weir_helper_start(struct weir_state *state);

// Hands out what one message says. 0, WEIR_ENDED_BY_AGENT, or -EPROTO for one that is not due.
int weir_helper_dispatch(struct weir_state *state, const struct weir_incoming *incoming);

#endif
