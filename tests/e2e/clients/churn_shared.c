// churn_shared.c: memory that is handed out to other processes, or taken in from them.
#include "churn.h"

#include <fcntl.h>
#include <unistd.h>

static const CUmemAllocationProp to_share = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
};
static const CUmemPoolProps pool_to_share = {
    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
};

// ---- By descriptor ----

static int export(CUmemGenericAllocationHandle handle) {
    int fd = -1;
    OK(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return fd;
}

static void exported(CUstream stream) {
    CUmemGenericAllocationHandle handle;
    (void)stream;
    OK(cuMemCreate, &handle, PHYSICAL_BYTES, &to_share, 0);
    close(export(handle));
    OK(cuMemRelease, handle);
}

static int exported_fd = -1;

// What the descriptor holds stays until the process ends.
static void export_one(void) {
    CUmemGenericAllocationHandle handle;
    if (exported_fd >= 0)
        return;
    OK(cuMemCreate, &handle, PHYSICAL_BYTES, &to_share, 0);
    exported_fd = export(handle);
}

static void imported(CUstream stream) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    (void)stream;
    OK(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)exported_fd,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuMemAddressReserve, &address, PHYSICAL_BYTES, 0, 0, 0);
    OK(cuMemMap, address, PHYSICAL_BYTES, 0, handle, 0);
    OK(cuMemUnmap, address, PHYSICAL_BYTES);
    OK(cuMemAddressFree, address, PHYSICAL_BYTES);
    OK(cuMemRelease, handle);
}

// The driver closes the descriptor that it is given.
static void external(CUstream stream) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                               .size = PHYSICAL_BYTES};
    CUexternalMemory memory;
    (void)stream;
    handle.handle.fd = fcntl(exported_fd, F_DUPFD_CLOEXEC, 0);
    OK(cuImportExternalMemory, &memory, &handle);
    OK(cuDestroyExternalMemory, memory);
}

// ---- Pools ----

static void pool_export(CUstream stream) {
    CUmemoryPool own, again;
    CUmemPoolPtrExportData pointer;
    CUdeviceptr address, same;
    int fd = -1;
    OK(cuMemPoolCreate, &own, &pool_to_share);
    OK(cuMemAllocFromPoolAsync, &address, PIECE_BYTES, own, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuMemPoolExportToShareableHandle, &fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemPoolExportPointer, &pointer, address);
    OK(cuMemPoolImportFromShareableHandle, &again, (void *)(intptr_t)fd,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    close(fd);
    OK(cuMemPoolImportPointer, &same, again, &pointer);
    OK(cuMemFreeAsync, same, stream);
    OK(cuMemFreeAsync, address, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuMemPoolDestroy, again);
    OK(cuMemPoolDestroy, own);
}

// ---- By IPC handle ----

static void ipc_export(CUstream stream) {
    CUdeviceptr address;
    CUipcMemHandle handle;
    (void)stream;
    OK(cuMemAlloc_v2, &address, PIECE_BYTES);
    OK(cuIpcGetMemHandle, &handle, address);
    OK(cuMemFree_v2, address);
}

CUipcMemHandle lent;

static void ipc_open(CUstream stream) {
    CUdeviceptr address;
    (void)stream;
    OK(cuIpcOpenMemHandle_v2, &address, lent, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    OK(cuIpcCloseMemHandle, address);
}

int lend(void) {
    CUcontext context;
    CUdeviceptr address;
    CUipcMemHandle handle;
    char byte;
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuMemAlloc_v2, &address, PIECE_BYTES);
    OK(cuIpcGetMemHandle, &handle, address);
    if (write(STDOUT_FILENO, &handle, sizeof(handle)) != sizeof(handle))
        return 1;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    OK(cuMemFree_v2, address);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    return 0;
}

const struct kind shared_kinds[] = {
    {"exported", NULL, exported},
    {"imported", export_one, imported},
    {"external", export_one, external},
    {"pool-export", NULL, pool_export},
    {"ipc-export", NULL, ipc_export},
    {"ipc-open", NULL, ipc_open},
    {NULL, NULL, NULL},
};
