// image.h: what a code image will take on a device, read from the image before the driver sees it.
//
// An image is PTX text, a cubin (an ELF file), or a fat binary that holds several of these, of
// which a driver loads one. The program gives it by address alone; how long it is says the image
// itself. Invariants:
//   - an image may be anything at all: nothing is read beyond its length where that is known, and
//     nothing that is not readable where it is not (each page is asked for first);
//   - sums do not overflow: what is too large to be true becomes WEIR_IMAGE_BYTES_MAX.
//
// What is counted, each piece rounded up to WEIR_IMAGE_UNIT: the code (of PTX the text's own
// length, of a cubin its code sections), and each variable in global and constant memory. An
// estimate for a real driver, which tells nobody what a module takes; the arrays, which is where
// gigabytes hide, are exact.
#ifndef WEIR_IMAGE_H
#define WEIR_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_IMAGE_UNIT 512u
#define WEIR_IMAGE_BYTES_MAX ((uint64_t)1 << 50)
#define WEIR_IMAGE_LENGTH_UNKNOWN UINT64_MAX

struct weir_image {
    uint64_t code_bytes;
    uint64_t variable_bytes;
};

// Reads an image of `length` bytes, or of unknown length, as a driver would load it on a device of
// this compute capability (major * 10 + minor). 0; EINVAL for what is no image that is known here,
// EFAULT where it cannot be read: a driver will refuse it too.
int weir_image_read(const void *image, uint64_t length, uint32_t capability,
                    struct weir_image *out);

// ---- Between the files of this part: image.c, cubin.c, ptxtext.c, lz4.c ----

// Memory of which so much may be read; with `probe` only page by page, as far as it is readable.
struct weir_view {
    const uint8_t *at;
    uint64_t length;
    bool probe;
};

// Whether the view has these bytes and they can be read.
bool weir_view_has(const struct weir_view *view, uint64_t at, uint64_t bytes);

// Adds a piece, rounded up to the unit, without overflow.
void weir_image_add(uint64_t *sum, uint64_t bytes);

// Each reads one kind of image. 0, or as above.
int weir_cubin_read(const struct weir_view *view, struct weir_image *out);
int weir_ptx_read(const struct weir_view *view, struct weir_image *out);

// Undoes LZ4's block format: reads all of `from`, writes at most `room` bytes. How many, or -1
// where the input is damaged or does not fit.
int64_t weir_lz4_undo(const uint8_t *from, size_t bytes, uint8_t *to, size_t room);

#endif
