// share.h: physical memory that can be mapped and shared (chunks), and the addresses at which it is
// mapped (ranges).
//
// A chunk's bytes are shared memory of the operating system: a part of one file of this process,
// until another process may want them, and from then on a file of their own, whose last page is its
// label. What a chunk takes of its card stands in the machine's books: as this process's own, and
// from its export on as a share. No two chunks of this process are the same memory.
//
// A range is a run of addresses backed by a run of a chunk, inside a reservation. Its data lie at a
// fixed distance from its addresses, the same throughout a reservation: neighbouring ranges are
// neighbours for data, too. Ranges are the blocks of the arena `driver.mapped`.
//
// The driver is locked before and after all of these functions. Those marked [drops] let it go in
// between, to wait until data have been moved: look at everything else anew.
#ifndef SIM_DRIVER_SHARE_H
#define SIM_DRIVER_SHARE_H

#include "driver.h"

// ---- chunk.c ----

struct chunk {
    struct object object;
    int gpu;        // the device; -1: memory of the host
    uint32_t card;  // its number in the machine
    uint32_t references;
    uint32_t handles;     // of them: those that the program has
    uint64_t bytes;       // a multiple of the host's pages
    uint64_t card_bytes;  // what of the card it takes
    char *data;           // the whole of it, in this process
    struct block *home;   // in this process's file; NULL: in a file of its own
    int fd;               // of its own file; -1: none
    uint64_t inode;       // by which that is recognised
    uint64_t share;       // in the machine's books; 0: this process's own
    bool imported;        // made by another process
    CUmemAllocationProp properties;
};

// New memory of a device, or of the host (gpu -1), with one reference. CUDA_ERROR_OUT_OF_MEMORY.
CUresult chunk_make(int gpu, uint64_t bytes, struct chunk **chunk);
void chunk_keep(struct chunk *chunk);
void chunk_drop(struct chunk *chunk);  // the last reference gives the memory back
// The chunk behind a handle that the program has; NULL: none.
struct chunk *chunk_get(uint64_t handle);

// Maps a part of a chunk over what is at a host address. ENOMEM.
int chunk_map(const struct chunk *chunk, uint64_t offset, uint64_t bytes, void *at);
// Puts memory of nobody there, with PROT_NONE or PROT_READ | PROT_WRITE.
void chunk_unmap(void *at, uint64_t bytes, int protection);

// ---- export.c ----

// A new descriptor of the chunk's own file, close-on-exec. [drops]
// CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_OPERATING_SYSTEM: the process has no more descriptors, or
// has closed ours.
CUresult chunk_export(struct chunk *chunk, int *fd);

// The chunk of such a descriptor, of this process or of another, with one reference more; the
// descriptor stays the caller's. CUDA_ERROR_INVALID_VALUE: no such file; CUDA_ERROR_INVALID_DEVICE:
// this process does not see its GPU; CUDA_ERROR_OUT_OF_MEMORY.
CUresult chunk_import(int fd, struct chunk **chunk);
// Memory that the machine knows nothing of: the importer takes it of its card.
CUresult chunk_import_unknown(int fd, uint64_t bytes, uint32_t gpu, struct chunk **chunk);

// A part of a chunk, as told to other processes of the machine. It does not change, and no other
// chunk ever has the same.
struct share_name {
    uint32_t magic;
    int32_t pid;  // who has the file, as descriptor `fd`
    int32_t fd;
    uint32_t reserved;
    uint64_t inode;
    uint64_t share;
    uint64_t offset;
    uint64_t bytes;  // from there on
    uint8_t uuid[16];
};
_Static_assert(sizeof(struct share_name) == 64, "as long as the handles that hold it");

// Names a part of a chunk, which is exported for it. [drops] As chunk_export;
// CUDA_ERROR_INVALID_VALUE: it is another process's.
CUresult chunk_name(struct chunk *chunk, uint64_t offset, uint64_t bytes, struct share_name *name);
// The chunk of such a name while a live process holds it, with one reference more; one with
// `imported` unset is this process's own. CUDA_ERROR_INVALID_HANDLE, and as chunk_import.
CUresult chunk_open(const struct share_name *name, struct chunk **chunk);

// Has a plain block lie in a chunk of its own. [drops] CUDA_ERROR_INVALID_VALUE: the block, of that
// id, is there no more; CUDA_ERROR_OUT_OF_MEMORY.
CUresult chunk_adopt(uint64_t address, uint64_t id, struct chunk **chunk);

// ---- range.c ----

#define RANGE_HOST (1u << SIM_GPUS_MAX)  // the host, beside devices as bits

struct range {
    struct block block;  // first, count: its addresses
    struct chunk *chunk;
    uint64_t offset;  // in the chunk
    char *data;       // of its first address
    uint32_t reads;   // devices that may, as bits, and RANGE_HOST
    uint32_t writes;
    uint32_t opened;  // how often the program has opened it
};

// Addresses for later ranges, whole pages of the host; a multiple of `align` (a power of two, 0:
// any), at `hint` if that is free. CUDA_ERROR_OUT_OF_MEMORY.
CUresult range_reserve(uint64_t bytes, uint64_t align, uint64_t hint, uint64_t *address);
// CUDA_ERROR_INVALID_VALUE: no such reservation, or something is mapped in it.
CUresult range_release(uint64_t address, uint64_t bytes);
// Maps a part of a chunk, which is kept, at reserved addresses; nobody may access it yet.
// CUDA_ERROR_INVALID_VALUE: they are not reserved, or in use; CUDA_ERROR_OUT_OF_MEMORY.
CUresult range_map(uint64_t address, uint64_t bytes, struct chunk *chunk, uint64_t offset,
                   enum block_kind kind, struct range **range);
// No data may be on their way: data_settle first, or data_still.
void range_unmap(struct range *range);
// Reserves and maps at once, and the opposite.
CUresult range_place(struct chunk *chunk, uint64_t offset, uint64_t bytes, enum block_kind kind,
                     struct range **range);
void range_displace(struct range *range);
// Lets devices, as bits, and the host (RANGE_HOST) read and write.
void range_allow(struct range *range, uint32_t reads, uint32_t writes);
// A chunk's data lie elsewhere now: maps all of its ranges anew. ENOMEM.
int range_follow(const struct chunk *chunk);

struct range *range_find(uint64_t address);   // that holds it; NULL: none
struct range *range_after(uint64_t address);  // the first that ends behind it; NULL: none
struct range *range_of(const struct chunk *chunk, enum block_kind kind);  // the first; NULL: none
bool range_covers(uint64_t address);                                      // whether it is reserved
bool range_reservation(uint64_t address, uint64_t *start, uint64_t *bytes);  // and as what
uint64_t range_address(const struct range *range);
uint64_t range_bytes(const struct range *range);
// Whether [address, address + bytes) is mapped throughout, and the same device can read (`writes`:
// and write) all of it.
bool range_usable(uint64_t address, uint64_t bytes, bool writes);

// The end of what a context has opened. [drops]
void ranges_drop(struct context *context);
// Whether a copy may write there: where no addresses are reserved, for all that ranges say.
bool range_writable(uint64_t address, uint64_t bytes);

// ---- external.c ----

// The end of what a context has of other interfaces.
void externals_drop(struct context *context);
// The end of a mapped buffer that begins at an address. [drops] CUDA_ERROR_INVALID_VALUE.
CUresult external_unmap(uint64_t address);

// ---- motion.c ----

// Waits until no data are on their way: none are until the lock is let go. [drops]
void data_still(void);
// The same, and before that until all data of all contexts have been moved that are to be. [drops]
void data_settle(void);
// Tells what is to be moved that what lay at `from` lies elsewhere.
void data_redirect(const char *from, uint64_t bytes, char *to);
// What is to be moved there will be found missing.
void data_lose(const char *from, uint64_t bytes);
// Unmaps memory of which nobody knows any more, when no data are on their way.
void data_unmap(char *from, uint64_t bytes);

#endif
