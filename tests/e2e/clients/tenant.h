// tenant.h: for clients that speak to the agent themselves: the connection, and a HELLO as the
// library says it.
#ifndef WEIR_E2E_TENANT_H
#define WEIR_E2E_TENANT_H

#include "../../../cgo/abi/weir_abi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Connects to the agent whose socket the environment names; -1 where that fails.
static inline int connect_agent(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("WEIR_SOCKET");
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (!path || strlen(path) >= sizeof(address.sun_path))
        return -1;
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        close(fd);
        return -1;
    }
    return fd;
}

// A HELLO that is in order, of a program with that name of less than 32 characters.
static inline struct weir_hello good_hello(const char *name) {
    struct weir_hello hello = {
        .header = {.type = WEIR_MSG_HELLO, .bytes = sizeof(hello), .seq = 1},
        .magic = WEIR_HELLO_MAGIC,
        .abi_oldest = WEIR_ABI_OLDEST,
        .abi_newest = WEIR_ABI_VERSION,
        .driver_version = 12020,
        .pid = (uint32_t)getpid(),
    };
    strcpy(hello.library, name);
    strcpy(hello.program, name);
    return hello;
}

#endif
