// graphgrowth.c: the reserves of all devices that a graph is on; see graph.h. They are begun in the
// order of the devices, so two threads never wait for each other.
#include "graph.h"

_Static_assert(WEIR_ORDINALS_MAX == 64, "devices are bits of a word");

static CUresult begin(struct weir_state *state, CUdevice device, int alone,
                      struct weir_growth *growth) {
    uint64_t bytes = alone ? WEIR_GROWTH_ALONE : 0, handle = (uint64_t)device;
    CUresult result = weir_obtain_enter(&state, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = weir_growth_begin(growth, state, WEIR_KIND_GRAPH, handle, bytes);
    if (result != CUDA_ERROR_NOT_FOUND)
        return result;
    if (weir_reserve_add(state, WEIR_KIND_GRAPH, handle, (uint32_t)device) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return weir_growth_begin(growth, state, WEIR_KIND_GRAPH, handle, bytes);
}

CUresult weir_growths_begin(struct weir_growths *growths, struct weir_state *state, uint64_t gpus,
                            int alone) {
    CUresult result = CUDA_SUCCESS;
    growths->count = 0;
    for (; gpus && result == CUDA_SUCCESS; gpus &= gpus - 1) {
        result = begin(state, __builtin_ctzll(gpus), alone, &growths->of[growths->count]);
        growths->count += result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        weir_growths_undone(growths);
    return result;
}

CUresult weir_growths_cover(struct weir_growths *growths, int finally) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < growths->count && result == CUDA_SUCCESS; i++)
        result = weir_growth_cover(&growths->of[i], finally);
    return result;
}

void weir_growths_end(struct weir_growths *growths) {
    for (int i = 0; i < growths->count; i++)
        if (weir_growth_end(&growths->of[i]) != CUDA_SUCCESS)
            weir_growth_undone(&growths->of[i]);
}

void weir_growths_undone(struct weir_growths *growths) {
    for (int i = 0; i < growths->count; i++)
        weir_growth_undone(&growths->of[i]);
    growths->count = 0;
}

CUresult weir_growths_prepare(struct weir_growths *growths, uint64_t bytes) {
    for (int i = 0; i < growths->count; i++)
        if (weir_growth_prepare(&growths->of[i], bytes) != CUDA_SUCCESS) {
            growths->of[i] = growths->of[--growths->count];  // it has ended
            weir_growths_undone(growths);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    return CUDA_SUCCESS;
}
