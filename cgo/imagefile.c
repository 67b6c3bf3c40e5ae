// imagefile.c: see imagefile.h.
#include "imagefile.h"

#include <string.h>

#include "sys.h"

#define FILE_BYTES_MAX ((int64_t)1 << 30)
#define PART_BYTES 4096u
#define MEMORY_CLOEXEC 1u  // of memfd_create

static const char directory[] = "/proc/self/fd/";

static void name(struct weir_image_file *file) {
    char digits[12];
    size_t count = 0, length = sizeof(directory) - 1;
    memcpy(file->path, directory, length);
    for (unsigned left = (unsigned)file->fd; left || !count; left /= 10)
        digits[count++] = (char)('0' + left % 10);
    while (count)
        file->path[length++] = digits[--count];
    file->path[length] = 0;
}

static int write_all(int fd, const char *part, size_t bytes) {
    while (bytes) {
        long got = weir_sys_write(fd, part, bytes);
        if (got < 0 && got != -EINTR)
            return (int)-got;
        part += got > 0 ? got : 0;
        bytes -= got > 0 ? (size_t)got : 0;
    }
    return 0;
}

// Reads from `fd` to its end into a file of memory.
static int keep(struct weir_image_file *file, int fd) {
    char part[PART_BYTES];
    file->fd = weir_sys_memfd("weir-image", MEMORY_CLOEXEC);
    if (file->fd < 0)
        return -file->fd;
    name(file);
    for (int64_t bytes = 0; bytes <= FILE_BYTES_MAX;) {
        long got = weir_sys_read(fd, part, sizeof(part));
        if (got == -EINTR)
            continue;
        if (got <= 0)
            return (int)-got;
        int rc = write_all(file->fd, part, (size_t)got);
        if (rc)
            return rc;
        bytes += got;
    }
    return EFBIG;
}

// Maps a regular file's contents and reads the image in it. The file may change or shrink at any
// time, so they are copied.
static void look(int fd, uint64_t bytes, uint32_t capability, struct weir_image *image) {
    char *contents = weir_sys_map(bytes);
    size_t done = 0;
    for (long got = 1; contents && got > 0 && done<bytes; done += got> 0 ? (size_t)got : 0)
        got = weir_sys_pread(fd, contents + done, bytes - done, (int64_t)done);
    if (!contents)
        return;
    // The mapping has the whole length, zeros behind what could be read.
    weir_image_read(contents, bytes, capability, image);
    weir_sys_unmap(contents, bytes);
}

int weir_image_file_read(struct weir_image_file *file, const char *path, uint32_t capability,
                         struct weir_image *image) {
    struct stat status;
    int rc = 0, fd;
    do
        fd = weir_sys_open(path, O_RDONLY | O_NOCTTY, 0);
    while (fd == -EINTR);
    *file = (struct weir_image_file){.fd = -1};
    *image = (struct weir_image){0, 0};
    if (fd < 0)
        return 0;  // the driver will not read it either
    int known = weir_sys_fstat(fd, &status) == 0;
    if (known && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        rc = keep(file, fd);
        known = rc == 0 && weir_sys_fstat(file->fd, &status) == 0;
    }
    if (known && S_ISREG(status.st_mode) && status.st_size > 0 && status.st_size <= FILE_BYTES_MAX)
        look(file->fd < 0 ? fd : file->fd, (uint64_t)status.st_size, capability, image);
    weir_sys_close(fd);
    return rc;
}

const char *weir_image_file_path(const struct weir_image_file *file, const char *path) {
    return file->fd < 0 ? path : file->path;
}

void weir_image_file_close(struct weir_image_file *file) {
    if (file->fd >= 0)
        weir_sys_close(file->fd);
    file->fd = -1;
}
