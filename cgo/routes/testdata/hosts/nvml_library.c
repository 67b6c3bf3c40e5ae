// nvml_library.c: stands in for NVML in tests of the routes. Each function tells by its code that
// it is the true one.
int nvmlShutdown(void) {
    return 7;
}

int nvmlDeviceGetMemoryInfo(void *device, void *memory) {
    (void)device;
    (void)memory;
    return 11;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, void *memory) {
    (void)device;
    (void)memory;
    return 12;
}

int nvmlDeviceGetName(void) {
    return 13;
}
