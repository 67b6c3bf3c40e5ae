// memory.c: the driver's functions that start it, allocate, free and tell about memory, as programs
// reach them. The forms without a suffix are those of before CUDA 3.2, with 32-bit sizes and
// addresses.
//
// What is not worth charging (no place for the result, nothing asked for) goes to the driver, whose
// error the program then gets.
#include "charge.h"
#include "convert.h"
#include "hooks.h"
#include "report.h"
#include "reserve.h"

CUresult weir_cuInit(unsigned flags) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuInit)(flags);
    // What the environment says is read now, before the program changes it. The agent is connected
    // to when there is something to ask: most of a crowd of programs that start at once have time
    // for that later, and some never take memory.
    if (result == CUDA_SUCCESS)
        weir_enter(&state);
    return result;
}

CUresult weir_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    struct weir_charge charge;
    CUresult result;
    if (!pointer || !bytes)
        return WEIR_REAL(cuMemAlloc_v2)(pointer, bytes);
    if (weir_convert(pointer, bytes, &result))
        return result;
    result = weir_charge_begin(&charge, WEIR_KIND_PLAIN, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemAlloc_v2)(pointer, bytes);
    return weir_charge_end(&charge, result, result ? 0 : *pointer, bytes);
}

CUresult weir_cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned bytes) {
    struct weir_charge charge;
    if (!pointer || !bytes)
        return WEIR_REAL(cuMemAlloc)(pointer, bytes);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_PLAIN, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemAlloc)(pointer, bytes);
    return weir_charge_end(&charge, result, result ? 0 : *pointer, bytes);
}

CUresult weir_cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    struct weir_charge charge;
    if (!pointer || !bytes)
        return WEIR_REAL(cuMemAllocManaged)(pointer, bytes, flags);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_MANAGED, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemAllocManaged)(pointer, bytes, flags);
    return weir_charge_end(&charge, result, result ? 0 : *pointer, bytes);
}

// What pitched memory takes; more than any device has where it cannot be said in 64 bits.
static uint64_t pitched_bytes(uint64_t pitch_bytes, uint64_t height) {
    uint64_t bytes;
    return __builtin_mul_overflow(pitch_bytes, height, &bytes) ? UINT64_MAX : bytes;
}

// Before the call: rows at the usual pitch, a multiple of 512 bytes. That is exact on the drivers
// known, and a larger guess would refuse what fits; should the driver return more, the difference
// is asked for afterwards.
static uint64_t expected_bytes(uint64_t width_bytes, uint64_t height) {
    uint64_t pitch_bytes = (width_bytes + WEIR_CHARGE_UNIT - 1) & ~(uint64_t)(WEIR_CHARGE_UNIT - 1);
    return pitch_bytes < width_bytes ? UINT64_MAX : pitched_bytes(pitch_bytes, height);
}

// What the driver takes as the size of an element.
static int is_element(unsigned bytes) {
    return bytes == 4 || bytes == 8 || bytes == 16;
}

CUresult weir_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                 size_t height, unsigned element_bytes) {
    struct weir_charge charge;
    if (!pointer || !pitch || !width_bytes || !height)
        return WEIR_REAL(cuMemAllocPitch_v2)(pointer, pitch, width_bytes, height, element_bytes);
    CUresult result;
    if (is_element(element_bytes) &&
        weir_convert(pointer, expected_bytes(width_bytes, height), &result)) {
        *pitch = result ? *pitch : weir_charge_round(width_bytes);
        return result;
    }
    result = weir_charge_begin(&charge, WEIR_KIND_PITCHED, expected_bytes(width_bytes, height));
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemAllocPitch_v2)(pointer, pitch, width_bytes, height, element_bytes);
    return result ? weir_charge_end(&charge, result, 0, 0)
                  : weir_charge_end(&charge, result, *pointer, pitched_bytes(*pitch, height));
}

CUresult weir_cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned *pitch, unsigned width_bytes,
                              unsigned height, unsigned element_bytes) {
    struct weir_charge charge;
    if (!pointer || !pitch || !width_bytes || !height)
        return WEIR_REAL(cuMemAllocPitch)(pointer, pitch, width_bytes, height, element_bytes);
    CUresult result =
        weir_charge_begin(&charge, WEIR_KIND_PITCHED, expected_bytes(width_bytes, height));
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemAllocPitch)(pointer, pitch, width_bytes, height, element_bytes);
    return result ? weir_charge_end(&charge, result, 0, 0)
                  : weir_charge_end(&charge, result, *pointer, pitched_bytes(*pitch, height));
}

// After the driver has freed: what is not in the table was a pool's or a graph's.
static void freed(const struct weir_discharge *discharge, CUresult result, CUdeviceptr pointer) {
    struct weir_state *state = discharge->state;
    if (state && !weir_discharge_end(discharge, result, pointer))
        weir_loosen(state);
    weir_settle_if_loose();
}

CUresult weir_cuMemFree_v2(CUdeviceptr pointer) {
    struct weir_discharge discharge;
    CUresult result;
    if (weir_convert_free(pointer, &result))
        return result;
    result = weir_discharge_begin(&discharge, pointer);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemFree_v2)(pointer);
    freed(&discharge, result, pointer);
    return result;
}

CUresult weir_cuMemFree(CUdeviceptr_v1 pointer) {
    struct weir_discharge discharge;
    CUresult result = weir_discharge_begin(&discharge, pointer);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemFree)(pointer);
    freed(&discharge, result, pointer);
    return result;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Whether the driver's answer about free memory is to be lowered, and to what.
static int lowered(CUresult result, const void *free_bytes, const void *total_bytes,
                   struct weir_report *report) {
    CUdevice device;
    if (result != CUDA_SUCCESS || !free_bytes || !total_bytes || weir_passing() ||
        WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return 0;
    weir_report(device, 1, report);
    return 1;
}

CUresult weir_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    struct weir_report report;
    CUresult result = WEIR_REAL(cuMemGetInfo_v2)(free_bytes, total_bytes);
    if (lowered(result, free_bytes, total_bytes, &report))
        weir_report_lower(&report, free_bytes, total_bytes);
    return result;
}

CUresult weir_cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes) {
    struct weir_report report;
    CUresult result = WEIR_REAL(cuMemGetInfo)(free_bytes, total_bytes);
    if (lowered(result, free_bytes, total_bytes, &report)) {
        *free_bytes = (unsigned)least(*free_bytes, report.free_bytes);
        *total_bytes = (unsigned)least(*total_bytes, report.cap_bytes);
    }
    return result;
}

CUresult weir_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    struct weir_report report;
    CUresult result = WEIR_REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result != CUDA_SUCCESS || weir_passing())
        return result;
    weir_report(device, 0, &report);
    *bytes = report.is_virtual ? report.cap_bytes : least(*bytes, report.cap_bytes);
    return result;
}

CUresult weir_cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    struct weir_report report;
    CUresult result = WEIR_REAL(cuDeviceTotalMem)(bytes, device);
    if (result != CUDA_SUCCESS || weir_passing())
        return result;
    weir_report(device, 0, &report);
    *bytes = (unsigned)least(*bytes, report.cap_bytes);
    return result;
}
