// image_face.go: the reading of code images, for Go tests.

package library

// #include "image.h"
import "C"

import "unsafe"

// imageBytes is what a code image takes on a device of a compute capability (80 is 8.0), as image.h says.
// It reads exactly the given bytes. The error is an errno, 0 for none.
func imageBytes(image []byte, capability uint32) (code, variables uint64, errno int) {
	var read C.struct_weir_image
	rc := C.weir_image_read(unsafe.Pointer(unsafe.SliceData(image)), C.uint64_t(len(image)), C.uint32_t(capability), &read)
	return uint64(read.code_bytes), uint64(read.variable_bytes), int(rc)
}

// imageBytesAt is imageBytes for an image of which only the address is known.
func imageBytesAt(image unsafe.Pointer, capability uint32) (code, variables uint64, errno int) {
	var read C.struct_weir_image
	rc := C.weir_image_read(image, C.WEIR_IMAGE_LENGTH_UNKNOWN, C.uint32_t(capability), &read)
	return uint64(read.code_bytes), uint64(read.variable_bytes), int(rc)
}

// undoLZ4 expands a block of LZ4 into at most room bytes; nil where it is damaged.
func undoLZ4(block []byte, room int) []byte {
	to := make([]byte, room+1)
	got := C.weir_lz4_undo((*C.uint8_t)(unsafe.SliceData(block)), C.size_t(len(block)),
		(*C.uint8_t)(unsafe.SliceData(to)), C.size_t(room))
	if got < 0 {
		return nil
	}
	return to[:got]
}
