// managed_data.c: the data of managed memory, on machines that keep them apart (`managed_data` of
// the machine file): each page has a copy on the host and one on each card of this process, of
// which one is current; the others are poison.
//
// What moves data, and when: a page's data follow it to where the machine says that it lies, at the
// end of each prefetch of it, and when a copy, a set or a kernel that computes first touches it
// after a move (pages that others displaced among them). To move is to copy from the current copy
// into the other place's, and to poison what is left behind. So whatever a real driver, or who
// drives it, gets wrong about a move shows in the data: what was lost, torn, done twice or is read
// where it is no more is poison. Such mistakes can be armed (move_lost, move_torn, move_twice; see
// fault.h): with them each check of data has to fail.
//
// The addresses that a program sees are mapped to the current copy, so that the host uses a page
// where it lies, as ever. A store of the host's in the moment in which that very page moves may be
// lost (a real driver has the host wait); a forked child shares these pages. Memory that is freed
// loses its data everywhere; a process that dies takes all with it.
//
// Invariants: data in use do not move: who uses them has `use` for reading, who moves them for
// writing. Never taken with the driver locked: kernels in flight ask the driver for addresses.
#define _GNU_SOURCE
#include "managed.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOST SIM_COLUMNS  // place of a copy, after the cards
#define LOOK_PAGES 256u   // that the machine is asked about at a time
#define POISON 0xdb

static struct {
    pthread_rwlock_t use;
    char *seen;  // what the program sees; NULL: data are not kept apart
    uint64_t bytes, page_bytes;
    struct {
        int fd;
        char *data;  // NULL: no such copy
    } copies[SIM_COLUMNS + 1];
} kept = {.use = PTHREAD_RWLOCK_INITIALIZER};

bool managed_data_on(void) {
    return kept.seen != NULL;
}

static bool make_copy(unsigned place) {
    int fd = memfd_create("weir-sim-managed", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)kept.bytes))
        return false;
    void *data = mmap(NULL, kept.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED)
        return false;
    madvise(data, kept.bytes, MADV_DONTDUMP);
    kept.copies[place].fd = fd;
    kept.copies[place].data = data;
    return true;
}

// Has the program see the copies of a place.
static bool show(unsigned place, uint64_t from, uint64_t bytes, char *seen) {
    return mmap(seen + from, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                kept.copies[place].fd, (off_t)from) != MAP_FAILED;
}

bool managed_data_start(void *seen, uint64_t bytes, uint64_t page_bytes) {
    if (!sim_machine_config(driver.machine)->managed_data)
        return true;
    kept.bytes = bytes;
    kept.page_bytes = page_bytes;
    bool made = make_copy(HOST);
    for (uint32_t device = 0; device < driver.config->gpu_count && made; device++)
        made = make_copy(managed_place((int)device));
    if (!made || !show(HOST, 0, bytes, seen))
        return false;
    kept.seen = seen;
    return true;
}

void managed_data_drop(uint32_t first, uint32_t count) {
    uint64_t from = first * kept.page_bytes, bytes = count * kept.page_bytes;
    for (unsigned place = 0; place <= HOST; place++)
        if (kept.copies[place].data)
            madvise(kept.copies[place].data + from, bytes, MADV_REMOVE);
    show(HOST, from, bytes, kept.seen);
}

// ---- Moves ----

// A page's word is 0 where its data are on the host.
static unsigned place_of(const struct page *page) {
    return page->data ? page->data - 1u : HOST;
}

static void move(uint32_t first, uint32_t count, unsigned from, unsigned to) {
    uint64_t at = first * kept.page_bytes, bytes = count * kept.page_bytes;
    char *old = kept.copies[from].data + at, *new = kept.copies[to].data + at;
    enum move_mistake mistake = fault_move();
    if (mistake == MOVE_LOST)
        memset(new, POISON, bytes);
    else
        memcpy(new, old, mistake == MOVE_TORN ? bytes / 2 : bytes);
    show(to, at, bytes, kept.seen);
    memset(old, POISON, bytes);
    if (mistake == MOVE_TWICE)
        memcpy(new, old, bytes);
    for (uint32_t i = first; i < first + count; i++)
        managed_page(i)->data = to == HOST ? 0 : (uint8_t)(to + 1);
}

// Where a page's data are to be, of the places at which it lies (bits; 0: nowhere yet).
static unsigned wanted(const struct page *page, uint32_t places) {
    unsigned place = place_of(page);
    if (!places || places >> (place == HOST ? SIM_AT_HOST : place) & 1)
        return place;
    return places >> SIM_AT_HOST & 1 ? HOST : (unsigned)__builtin_ctz(places);
}

// Where the data of page i of a range are, and where they are to be.
struct course {
    unsigned from, to;
};

static struct course course_of(uint32_t first, const uint32_t *places, uint32_t i) {
    const struct page *page = managed_page(first + i);
    return (struct course){place_of(page), wanted(page, places[i])};
}

// The next pages of a range, from the one at *i on, which all have to move from one place to
// another: *i becomes their first. How many; 0: no more have to move.
static uint32_t next_move(uint32_t first, const uint32_t *places, uint32_t count, uint32_t *i,
                          struct course *course) {
    for (; *i < count; ++*i) {
        *course = course_of(first, places, *i);
        if (course->from != course->to)
            break;
    }
    uint32_t end = *i;
    for (; end < count; end++) {
        struct course own = course_of(first, places, end);
        if (own.from != course->from || own.to != course->to)
            break;
    }
    return end - *i;
}

static void follow(uint32_t first, uint32_t count) {
    uint32_t places[LOOK_PAGES], i = 0, n;
    struct course course;
    sim_managed_places(driver.machine, first, count, places);
    pthread_rwlock_rdlock(&kept.use);
    n = next_move(first, places, count, &i, &course);
    pthread_rwlock_unlock(&kept.use);
    if (!n)
        return;
    pthread_rwlock_wrlock(&kept.use);
    for (i = 0; (n = next_move(first, places, count, &i, &course)); i += n)
        move(first + i, n, course.from, course.to);
    pthread_rwlock_unlock(&kept.use);
}

void managed_data_follow(const struct task *task) {
    struct managed_walk walk = {0};
    struct sim_touch touches[SIM_TOUCHES_MAX];
    for (bool more = managed_data_on(); more;) {
        more = managed_touches(task, &walk, touches);
        pthread_mutex_unlock(&driver.lock);
        for (unsigned i = 0; i < SIM_TOUCHES_MAX && touches[i].kind != SIM_TOUCH_NONE; i++)
            for (uint32_t done = 0; done < touches[i].count; done += LOOK_PAGES) {
                uint32_t left = touches[i].count - done;
                follow(touches[i].first + done, left < LOOK_PAGES ? left : LOOK_PAGES);
            }
        pthread_mutex_lock(&driver.lock);
    }
}

void managed_data_use(bool begins) {
    if (!managed_data_on())
        return;
    if (begins)
        pthread_rwlock_rdlock(&kept.use);
    else
        pthread_rwlock_unlock(&kept.use);
}
