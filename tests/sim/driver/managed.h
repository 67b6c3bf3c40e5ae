// managed.h: managed memory of this process, between managed.c, managed_data.c and advice.c.
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
    uint8_t data;    // whose copy is current: 0 the host's, else a column's, from 1
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

// ---- managed_data.c: all of it does nothing where the machine does not keep data apart ----

// Makes the copies of all managed memory, which the program sees at `seen`. False: no room.
bool managed_data_start(void *seen, uint64_t bytes, uint64_t page_bytes);
// Pages that are nobody's any more lose their data; not without managed_data_on.
void managed_data_drop(uint32_t first, uint32_t count);

#endif
