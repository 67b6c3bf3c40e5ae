// members.h: which processes are of this process's container, as far as it can see.
#ifndef WEIR_MEMBERS_H
#define WEIR_MEMBERS_H

// Whether a process, by the pid that this one sees it under, has mapped this container's control
// page: there is one of it a container, and only the agent hands it out. A process that has ended,
// that may not be looked into, or that has no session (yet) is none.
int weir_is_member(unsigned pid);

#endif
