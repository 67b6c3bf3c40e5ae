// Where cards sit: what lies between two of them, which processors and memory are near, NVLinks.
//
// A card's NVLinks are numbered by the card at their other end. The processors of the host are
// shared out among the machine's NUMA nodes in equal runs, since it has others than the simulated
// machine.
#include "query.h"

#include <string.h>
#include <unistd.h>

// How far two cards are from each other.
enum {
    LEVEL_SAME_SWITCH = 10,
    LEVEL_SWITCHES = 20,  // several, without a host bridge
    LEVEL_HOST_BRIDGE = 30,
    LEVEL_NODE = 40,
    LEVEL_SYSTEM = 50,
};

enum { P2P_OK = 0, P2P_CHIPSET = 1, P2P_NOT_SUPPORTED = 5 };
enum { P2P_READ, P2P_WRITE, P2P_NVLINK, P2P_ATOMICS, P2P_PROPRIETARY, P2P_CAPABILITIES };

#define NVLINK_CAPABILITIES 6  // 0: peer access, 1: to host memory, 2 and 3: atomics of either, ...
#define NVLINK_PEER_ACCESS 0
#define NVLINK_PEER_ATOMICS 2
#define NVLINK_VALID 5
#define NVLINK_TO_GPU 0

#define BITS_PER_WORD (8 * sizeof(unsigned long))

static int level_between(const struct sim_config *config, unsigned one, unsigned other) {
    const uint8_t *a = config->gpus[one].pcie_path, *b = config->gpus[other].pcie_path;
    unsigned same = 0;
    while (same < SIM_PCIE_DEPTH && a[same] == b[same] && (same == 0 || a[same] != 0)) {
        same++;
    }
    if (same == 0) {
        int node = config->gpus[one].numa_node;
        return node >= 0 && node == config->gpus[other].numa_node ? LEVEL_NODE : LEVEL_SYSTEM;
    }
    if (same == 1) {
        return LEVEL_HOST_BRIDGE;
    }
    bool last = same == SIM_PCIE_DEPTH || (a[same] == 0 && b[same] == 0);
    return last ? LEVEL_SAME_SWITCH : LEVEL_SWITCHES;
}

// Begins a query of two cards.
static int begin_two(struct sim_nvml_query *query, const struct nvml_device *one,
                     const struct nvml_device *other, unsigned *peer) {
    int code = sim_nvml_begin_gpu(query, other);
    if (code != NVML_OK) {
        return code;
    }
    *peer = query->index;
    sim_nvml_end(NVML_OK);
    return sim_nvml_begin_gpu(query, one);
}

int nvmlDeviceGetTopologyCommonAncestor(struct nvml_device *one, struct nvml_device *other,
                                        int *level) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_two(&query, one, other, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (level == NULL || peer == query.index) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *level = level_between(query.config, query.index, peer);
    return sim_nvml_end(NVML_OK);
}

// The cards at exactly this level, as many as there is room for; *count becomes their number.
int nvmlDeviceGetTopologyNearestGpus(struct nvml_device *device, int level, unsigned *count,
                                     struct nvml_device **list) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL || (*count > 0 && list == NULL) || level < 0 || level > LEVEL_SYSTEM) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    unsigned room = *count;
    *count = 0;
    for (unsigned i = 0; i < query.config->gpu_count; i++) {
        if (i == query.index || level_between(query.config, query.index, i) != level) {
            continue;
        }
        if (*count < room) {
            list[*count] = sim_nvml_handle(i);
        }
        ++*count;
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetP2PStatus(struct nvml_device *one, struct nvml_device *other, int capability,
                           int *status) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_two(&query, one, other, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (status == NULL || capability < 0 || capability >= P2P_CAPABILITIES || peer == query.index) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    bool linked = query.config->nvlinks[query.index][peer] != 0;
    if (!sim_peer_ok(query.config, query.index, peer)) {
        *status = P2P_CHIPSET;
    } else if (capability == P2P_READ || capability == P2P_WRITE) {
        *status = P2P_OK;
    } else {
        bool by_link = capability == P2P_NVLINK || capability == P2P_ATOMICS;
        *status = by_link && linked ? P2P_OK : P2P_NOT_SUPPORTED;
    }
    return sim_nvml_end(NVML_OK);
}

// ---- NVLinks ----

// Begins a query of one of a card's links, which leads to *peer. NVML_INVALID_ARGUMENT: more than a
// card can have; NVML_NOT_SUPPORTED: more than this one has.
static int begin_link(struct sim_nvml_query *query, const struct nvml_device *device, unsigned link,
                      unsigned *peer) {
    int code = sim_nvml_begin_gpu(query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (link >= SIM_NVLINKS_MAX) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    for (*peer = 0; *peer < query->config->gpu_count; ++*peer) {
        unsigned links = query->config->nvlinks[query->index][*peer];
        if (link < links) {
            return NVML_OK;
        }
        link -= links;
    }
    return sim_nvml_end(NVML_NOT_SUPPORTED);
}

int nvmlDeviceGetNvLinkState(struct nvml_device *device, unsigned link, unsigned *active) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_link(&query, device, link, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (active == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *active = 1;
    return sim_nvml_end(NVML_OK);
}

// By the card's generation: 3 for Ampere, 4 for Hopper, 5 after that.
int nvmlDeviceGetNvLinkVersion(struct nvml_device *device, unsigned link, unsigned *version) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_link(&query, device, link, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (version == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    uint32_t major = query.gpu->compute_major;
    *version = major < 8 ? 2 : major == 8 ? 3 : major == 9 ? 4 : 5;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetNvLinkCapability(struct nvml_device *device, unsigned link, int capability,
                                  unsigned *supported) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_link(&query, device, link, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (supported == NULL || capability < 0 || capability >= NVLINK_CAPABILITIES) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *supported = capability == NVLINK_PEER_ACCESS || capability == NVLINK_PEER_ATOMICS ||
                 capability == NVLINK_VALID;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *device, unsigned link,
                                        struct nvml_pci_info *pci) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_link(&query, device, link, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (pci == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    sim_nvml_describe_pci(&query.config->gpus[peer], pci);
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetNvLinkRemotePciInfo(struct nvml_device *device, unsigned link,
                                     struct nvml_pci_info *pci) {
    struct nvml_pci_info whole;
    int code = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &whole);
    if (code == NVML_OK && pci == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    if (code == NVML_OK) {
        memcpy(pci, &whole, offsetof(struct nvml_pci_info, bus_id));
    }
    return code;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *device, unsigned link, int *type) {
    struct sim_nvml_query query;
    unsigned peer;
    int code = begin_link(&query, device, link, &peer);
    if (code != NVML_OK) {
        return code;
    }
    if (type == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *type = NVLINK_TO_GPU;
    return sim_nvml_end(NVML_OK);
}

// ---- Processors and memory ----

static unsigned nodes_of(const struct sim_config *config) {
    int last = 0;
    for (unsigned i = 0; i < config->gpu_count; i++) {
        last = config->gpus[i].numa_node > last ? config->gpus[i].numa_node : last;
    }
    return (unsigned)last + 1;
}

// The node that a processor of the host belongs to in the simulated machine.
static unsigned node_of_cpu(const struct sim_config *config, unsigned cpu) {
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    unsigned nodes = nodes_of(config);
    return cpus > 0 && cpu < (unsigned long)cpus
               ? (unsigned)((uint64_t)cpu * nodes / (unsigned long)cpus)
               : nodes;
}

static void set_bit(unsigned long *words, unsigned count, unsigned bit) {
    if (bit / BITS_PER_WORD < count) {
        words[bit / BITS_PER_WORD] |= 1ul << bit % BITS_PER_WORD;
    }
}

// A scope is a node or a socket, which are the same here.
static int begin_words(struct sim_nvml_query *query, const struct nvml_device *device,
                       unsigned words, unsigned long *to, int scope) {
    int code = sim_nvml_begin_gpu(query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (words == 0 || to == NULL || scope < 0 || scope > 1) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    memset(to, 0, words * sizeof(*to));
    return NVML_OK;
}

int nvmlDeviceGetMemoryAffinity(struct nvml_device *device, unsigned words, unsigned long *nodes,
                                int scope) {
    struct sim_nvml_query query;
    int code = begin_words(&query, device, words, nodes, scope);
    if (code != NVML_OK) {
        return code;
    }
    if (query.gpu->numa_node < 0) {
        return sim_nvml_end(NVML_NOT_SUPPORTED);
    }
    set_bit(nodes, words, (unsigned)query.gpu->numa_node);
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetNumaNodeId(struct nvml_device *device, unsigned *node) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (node == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (query.gpu->numa_node < 0) {
        return sim_nvml_end(NVML_NOT_SUPPORTED);
    }
    *node = (unsigned)query.gpu->numa_node;
    return sim_nvml_end(NVML_OK);
}

// A card that is near no node is as near to every processor.
int nvmlDeviceGetCpuAffinityWithinScope(struct nvml_device *device, unsigned words,
                                        unsigned long *cpus, int scope) {
    struct sim_nvml_query query;
    int code = begin_words(&query, device, words, cpus, scope);
    if (code != NVML_OK) {
        return code;
    }
    long count = sysconf(_SC_NPROCESSORS_CONF);
    for (long cpu = 0; cpu < count; cpu++) {
        int node = (int)node_of_cpu(query.config, (unsigned)cpu);
        if (query.gpu->numa_node < 0 || query.gpu->numa_node == node) {
            set_bit(cpus, words, (unsigned)cpu);
        }
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetCpuAffinity(struct nvml_device *device, unsigned words, unsigned long *cpus) {
    return nvmlDeviceGetCpuAffinityWithinScope(device, words, cpus, 0);
}

// The cards that are near a processor.
int nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, struct nvml_device **list) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    unsigned node = node_of_cpu(query.config, cpu);
    if (count == NULL || (*count > 0 && list == NULL) || node == nodes_of(query.config)) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    unsigned room = *count;
    *count = 0;
    for (unsigned i = 0; i < query.config->gpu_count; i++) {
        int near = query.config->gpus[i].numa_node;
        if (near >= 0 && (unsigned)near != node) {
            continue;
        }
        if (*count < room) {
            list[*count] = sim_nvml_handle(i);
        }
        ++*count;
    }
    return sim_nvml_end(NVML_OK);
}
