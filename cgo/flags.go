// Package library is the Go face of libweir.so, the C library that stands between a program and the
// CUDA driver.
//
// No Go code runs in a program's process: the C files of this folder are compiled by cgo into this
// package for its tests, and linked by cgo/link, together with those of preload, into libweir.so. The
// rest of weir uses the package lib, which embeds that.
package library

// Flags for the C files, wherever they are compiled. Position-independent and hidden because most of
// them end up in a shared object; no stack protector and no fortified calls because both would import
// symbols of one C library.

// #cgo CFLAGS: -std=gnu11 -O2 -D_GNU_SOURCE -fPIC -fvisibility=hidden -fno-stack-protector -U_FORTIFY_SOURCE
// #include "version.h"
import "C"

// Version is the version of the library, as it tells it to the agent.
const Version = C.WEIR_VERSION
