// fuzz.c: libFuzzer's entry to what an agent may send (host/messages.c).
#include <stdlib.h>

#include "../host/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (test_messages(data, bytes))
        abort();
    return 0;
}
