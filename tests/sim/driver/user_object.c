// user_object.c: objects of the program that graphs keep alive: counted references, and a function
// that ends the object after the last. It is called on the worker's thread, as a host function is.
#include "graph.h"

#include <stdlib.h>

struct user_object {
    struct object object;
    uint64_t references;
    CUhostFn destroy;
    void *pointer;
    struct user_object *next_dead;
};

static struct pool objects = {.bytes = sizeof(struct user_object), .most = 1u << 20};
static struct user_object *dead;

static struct user_object *object_get(CUuserObject handle) {
    struct user_object *object = pool_get(&objects, handle);
    return object && object->references ? object : NULL;
}

static void release(struct user_object *object, uint64_t count) {
    object->references -= count < object->references ? count : object->references;
    if (object->references)
        return;
    object->next_dead = dead;
    dead = object;
    worker_wake();
}

bool user_objects_dead(void) {
    return dead != NULL;
}

void user_objects_end(void) {
    while (dead) {
        struct user_object *object = dead;
        CUhostFn destroy = object->destroy;
        void *pointer = object->pointer;
        dead = object->next_dead;
        pool_drop(&objects, object);
        pthread_mutex_unlock(&driver.lock);
        driver_in_callback(true);
        destroy(pointer);
        driver_in_callback(false);
        pthread_mutex_lock(&driver.lock);
    }
}

// ---- References of graphs ----

static struct retained *retained_find(struct retained *list, const struct user_object *object) {
    while (list && list->object != object)
        list = list->next;
    return list;
}

static CUresult retained_add(struct retained **list, struct user_object *object, uint64_t count) {
    struct retained *entry = retained_find(*list, object);
    if (!entry) {
        entry = calloc(1, sizeof *entry);
        if (!entry)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *entry = (struct retained){.object = object, .next = *list};
        *list = entry;
    }
    entry->count += count;
    return CUDA_SUCCESS;
}

CUresult retained_copy(struct retained **to, const struct retained *from) {
    CUresult rc = CUDA_SUCCESS;
    for (; from && !rc; from = from->next) {
        rc = retained_add(to, from->object, from->count);
        if (!rc)
            from->object->references += from->count;
    }
    return rc;
}

void retained_drop(struct retained **list) {
    while (*list) {
        struct retained *entry = *list;
        *list = entry->next;
        release(entry->object, entry->count);
        free(entry);
    }
}

static bool drop_now(struct task *task, uint64_t *wait_ns) {
    (void)wait_ns;
    struct retained **list = (struct retained **)task->params;
    retained_drop(list);
    return true;
}

void retained_drop_after(struct retained **list, struct sim_dep last) {
    struct context *context = last.seq ? driver.by_machine[last.context] : NULL;
    if (!*list || op_done(last) || !context)
        return retained_drop(list);
    struct task *task = task_make(TASK_STEP, context, sizeof *list);
    if (!task)
        return retained_drop(list);
    uint64_t seq;
    struct retained *kept = *list;
    *list = NULL;
    task->step.step = drop_now;
    *(struct retained **)task->params = kept;
    struct job job = {.engine = SIM_ENGINE_HOST, .task = task};
    if (submit_after(context, context->id, job, &last, 1, &seq))
        retained_drop(&kept);
    worker_wake();
}

// ---- Calls ----

static CUresult object_enter(CUuserObject handle, unsigned count, struct user_object **object) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *object = object_get(handle);
    return *object && count && count <= INT32_MAX ? CUDA_SUCCESS
                                                  : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

API cuUserObjectCreate(CUuserObject *out, void *pointer, CUhostFn destroy, unsigned int references,
                       unsigned int flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!out || !destroy || !references || references > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct user_object *object = pool_take(&objects);
    if (!object)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    object->references = references;
    object->destroy = destroy;
    object->pointer = pointer;
    *out = (CUuserObject)object;
    return driver_leave(CUDA_SUCCESS);
}

API cuUserObjectRetain(CUuserObject handle, unsigned int count) {
    struct user_object *object;
    CUresult rc = object_enter(handle, count, &object);
    if (!rc)
        object->references += count;
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuUserObjectRelease(CUuserObject handle, unsigned int count) {
    struct user_object *object;
    CUresult rc = object_enter(handle, count, &object);
    if (!rc)
        release(object, count);
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

// With the flag the caller's references become the graph's.
API cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count,
                            unsigned int flags) {
    struct user_object *object;
    CUresult rc = object_enter(object_handle, count, &object);
    if (rc)
        return rc;
    struct graph *graph = graph_get(handle);
    if (!graph || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = retained_add(&graph->retained, object, count);
    if (!rc && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
        object->references += count;
    return driver_leave(rc);
}

API cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count) {
    struct user_object *object;
    CUresult rc = object_enter(object_handle, count, &object);
    if (rc)
        return rc;
    struct graph *graph = graph_get(handle);
    struct retained *entry = graph ? retained_find(graph->retained, object) : NULL;
    if (!entry || entry->count < count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    entry->count -= count;
    struct retained **link = &graph->retained;
    while (*link != entry)
        link = &(*link)->next;
    if (!entry->count) {
        *link = entry->next;
        free(entry);
    }
    release(object, count);
    return driver_leave(CUDA_SUCCESS);
}
