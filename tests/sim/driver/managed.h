// managed.h: managed memory of this process, between managed.c and advice.c.
#ifndef SIM_DRIVER_MANAGED_H
#define SIM_DRIVER_MANAGED_H

#include "driver.h"

#define NO_DEVICE (-2)  // and -1 is the host, as in the driver API

// What the program has said of a page, and what is known of it here. Advice works on whole pages:
// small allocations that share one share it.
struct page {
    uint32_t accessed_by;  // bits of devices
    int8_t preferred;      // a device, -1: the host, NO_DEVICE
    int8_t last_prefetch;  // likewise
    bool read_mostly;
    bool seen;       // whether the host touched it first has been looked at
    uint16_t users;  // blocks of which it holds a part
    uint32_t alike;  // so many from here on have the same advice and have been seen; 0: unknown
};

struct pages {
    uint32_t first, count;
};

// The pages of a range inside one managed block. False: it is not that.
bool managed_pages(CUdeviceptr address, size_t bytes, struct pages *pages);
struct page *managed_page(uint32_t number);

// Where a device's, or the host's, memory is, as the machine counts this process's places.
unsigned managed_place(int device);

#endif
