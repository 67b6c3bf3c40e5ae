// Package abi holds what crosses a process boundary between the library and the agent: the C
// declarations in weir_abi.h and the Go types generated from them.
package abi

//go:generate sh generate.sh
