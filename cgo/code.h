// code.h: modules and libraries, and the device memory that their code and variables take.
//
// A module belongs to a context and is charged when it is loaded. A library belongs to none: each
// context has its code. A driver loads it there at once or when it is first used, as
// CUDA_MODULE_LOADING says, and a launch may be that use; so it is charged in every context from
// the beginning, that of the library or that of the context. What an image takes, image.h says.
#ifndef WEIR_CODE_H
#define WEIR_CODE_H

#include "contexts.h"
#include "imagefile.h"

// A module or library that is being loaded.
struct weir_loading {
    struct weir_state *state;  // NULL: calls pass through, nothing is charged
    uint64_t context;          // handle; 0: a library
    uint32_t gpu;
    uint32_t counted;
    uint64_t bytes;  // that it takes; of a module, obtained if it is counted
    struct weir_image_file file;
};

// Reads the image of a module for the current context, by its address (`path` NULL) or from a file,
// and obtains what it takes. CUDA_SUCCESS: the driver may be called, of a file
// with weir_image_file_path, and weir_module_end must be.
CUresult weir_module_begin(struct weir_loading *loading, const void *image, const char *path);

// Settles with what the driver answered. Returns the code for the program.
CUresult weir_module_end(struct weir_loading *loading, CUresult result, CUmodule module);

// The same for a library.
CUresult weir_library_begin(struct weir_loading *loading, const void *image, const char *path);
CUresult weir_library_end(struct weir_loading *loading, CUresult result, CUlibrary library);

// What was loaded under a handle when its end began.
struct weir_unloading {
    struct weir_state *state;  // NULL: nothing can be given back
    uint32_t number;
    uint64_t serial;
};

// Before the driver is called to unload, and afterwards.
void weir_unload_begin(struct weir_unloading *unloading, uint64_t handle);
void weir_unload_end(const struct weir_unloading *unloading, CUresult result);

// Brings every context's share of libraries to what there are. CUDA_SUCCESS, or
// CUDA_ERROR_OUT_OF_MEMORY where a context would have to take more than there is.
CUresult weir_libraries_balance(struct weir_state *state);

// The modules of one record of a context are another's from now on. Lock held.
void weir_codes_move(struct weir_state *state, uint64_t from_serial, uint64_t to_serial);

// Forgets the modules of a context that has ended, by its ticket; before weir_contexts_ended or
// weir_contexts_emptied, which give back their charge.
void weir_codes_ended(struct weir_state *state, uint32_t ticket);

#endif
