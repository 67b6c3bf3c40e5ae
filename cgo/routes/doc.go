// Package routes holds the tests of how programs reach the driver through libweir.so: every route of
// resolution, what the library imports and exports, what it costs a process that never uses CUDA.
//
// The tests build small host programs in C and a driver whose functions do nothing (testdata/hosts), and
// run them with a library in which the wrappers only count their calls.
package routes
