// pages.h: the two shared pages of a connection.
#ifndef WEIR_PAGES_H
#define WEIR_PAGES_H

#include "client.h"

// What the control page is called among memory files.
#define WEIR_CONTROL_NAME "weir-control"

// The pages that the agent has given are none that can be used. No errno; the state says why.
#define WEIR_BAD_PAGES (-4097)

// Checks the two pages of a WELCOME (size, seals, contents) and maps them where the last ones were;
// the credit must be closed. Keeps the usage page's descriptor in the state and closes the control
// page's; closes both on failure. 0, or -errno; after a failure the old pages may be gone, never
// unmapped.
int weir_pages_map(struct weir_state *state, struct weir_incoming *incoming);

#endif
