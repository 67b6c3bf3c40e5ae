// image.c: reads objects laid out in memory, whole and damaged, under the address and
// undefined-behaviour sanitizers.
//
// image FILE SEED ROUNDS NAME...: lays FILE out as a loader would, in a block that ends where its
// last segment ends and whose gaps may not be touched; prints where it finds each NAME. Then
// damages a few words of the tables in each of ROUNDS copies and reads those: any answer will do,
// but no byte outside the segments may be read.
#include <elf.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"
#include "objects.h"
#include "preload/slots.h"

// What slots.c writes through; nothing is written here.
static void *keep(const struct weir_object *object, const struct weir_slot *slot, void *context) {
    (void)object;
    size_t *slots = context;
    ++*slots;
    return slot->value;
}

struct image {
    const unsigned char *file;
    const ElfW(Ehdr) * header;
    const ElfW(Phdr) * segments;
    size_t bytes;  // from address 0 to the end of the last segment
};

// Lays the image out anew; the caller frees it.
static unsigned char *lay_out(const struct image *image) {
    unsigned char *block = aligned_alloc(64, (image->bytes + 63) / 64 * 64);
    memset(block, 0, image->bytes);
    __asan_poison_memory_region(block, (image->bytes + 63) / 64 * 64);
    for (size_t i = 0; i < image->header->e_phnum; i++) {
        const ElfW(Phdr) *segment = &image->segments[i];
        if (segment->p_type != PT_LOAD)
            continue;
        __asan_unpoison_memory_region(block + segment->p_vaddr, segment->p_memsz);
        memcpy(block + segment->p_vaddr, image->file + segment->p_offset, segment->p_filesz);
    }
    return block;
}

static void drop(const struct image *image, unsigned char *block) {
    __asan_unpoison_memory_region(block, (image->bytes + 63) / 64 * 64);
    free(block);
}

// Reads everything of an image that the library reads of any. Returns whether it is an object at
// all.
static bool read_all(const struct image *image, unsigned char *block, char **names, bool print) {
    struct weir_object object;
    if (weir_object_read(&object, (uintptr_t)block, image->segments, image->header->e_phnum, NULL))
        return false;
    for (; *names; names++) {
        unsigned char *found = weir_object_function(&object, *names);
        if (print)
            printf("%s %#tx\n", *names, found ? found - block : 0);
    }
    for (size_t i = 0; i < object.entries.count && object.entries.at[i].d_tag != DT_NULL; i++) {
        const char *needed = object.entries.at[i].d_tag != DT_NEEDED
                                 ? NULL
                                 : weir_object_string(&object, object.entries.at[i].d_un.d_val);
        if (print && needed)
            printf("needed %s\n", needed);
    }
    size_t references = weir_object_references(&object);
    for (size_t i = 0; i < references; i++)
        weir_object_string(&object, object.symbols.at[i].st_name);
    size_t slots = 0;
    weir_slots_choose(&object, keep, &slots);
    if (print)
        printf("soname %s\nslots %zu\nreferences %zu\n", object.soname ? object.soname : "none",
               slots, references);
    return true;
}

static uint64_t random_state;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

// Overwrites a few words where tables lie: the first segment and the dynamic section.
static void damage(const struct image *image, unsigned char *block) {
    for (size_t i = 0; i < image->header->e_phnum; i++) {
        const ElfW(Phdr) *segment = &image->segments[i];
        bool first = segment->p_type == PT_LOAD && segment->p_offset == 0;
        if ((!first && segment->p_type != PT_DYNAMIC) || segment->p_memsz < 8)
            continue;
        for (size_t words = next_random() % 4; words; words--) {
            size_t room = segment->p_memsz < 8192 || next_random() % 2 ? segment->p_memsz : 8192;
            size_t at = next_random() % (room - 7) & ~(size_t)3;
            uint64_t value = next_random() >> next_random() % 64;
            memcpy(block + segment->p_vaddr + at, &value, next_random() % 2 ? 8 : 4);
        }
    }
}

int main(int argc, char **argv) {
    struct stat status;
    int fd = argc > 4 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &status))
        return 2;
    struct image image = {.file =
                              mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0)};
    image.header = (const ElfW(Ehdr) *)image.file;
    image.segments = (const ElfW(Phdr) *)(image.file + image.header->e_phoff);
    for (size_t i = 0; i < image.header->e_phnum; i++) {
        size_t end = image.segments[i].p_vaddr + image.segments[i].p_memsz;
        if (image.segments[i].p_type == PT_LOAD && end > image.bytes)
            image.bytes = end;
    }
    unsigned char *block = lay_out(&image);
    bool whole = read_all(&image, block, argv + 4, true);
    drop(&image, block);
    random_state = strtoull(argv[2], NULL, 10) | 1;
    size_t rounds = strtoull(argv[3], NULL, 10), readable = 0;
    for (size_t i = 0; i < rounds; i++) {
        block = lay_out(&image);
        damage(&image, block);
        readable += read_all(&image, block, argv + 4, false);
        drop(&image, block);
    }
    // Damage that makes every image unreadable, or none, would test nothing.
    printf("damaged %s\n", readable && readable < rounds ? "some" : readable ? "all read" : "none");
    return !whole;
}
