// imagefile.h: files that images are loaded from, read before the driver reads them.
//
// A regular file is left to the driver. What is in any other (a pipe, a device) can be read only
// once, so it is kept in a file of memory, which the driver is given in its place.
#ifndef WEIR_IMAGEFILE_H
#define WEIR_IMAGEFILE_H

#include "image.h"

struct weir_image_file {
    int fd;         // of the file of memory, or -1
    char path[32];  // its name, if there is one
};

// Reads what the image in a file takes on a device of this capability; zeros where that cannot be
// told. It waits for the file as the driver would. 0, EFBIG for what is longer than any image, or
// another errno where what was read could not be kept; weir_image_file_close in any case.
int weir_image_file_read(struct weir_image_file *file, const char *path, uint32_t capability,
                         struct weir_image *image);

// The path that the driver is to be given.
const char *weir_image_file_path(const struct weir_image_file *file, const char *path);

void weir_image_file_close(struct weir_image_file *file);

#endif
