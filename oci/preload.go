package oci

// How the library gets into processes: a file that glibc reads, and a variable that musl reads, too.

import (
	"bytes"
	"strings"
)

const (
	preloadVariable = "LD_PRELOAD="
	socketVariable  = "WEIR_SOCKET="
)

// prepend puts the library before what a LD_PRELOAD already names.
func prepend(library, value string) string {
	switch {
	case value == "":
		return library
	case value == library || strings.HasPrefix(value, library+":"):
		return value
	}
	return library + ":" + value
}

// MergePreload is the /etc/ld.so.preload of a container: the library, then what the image has there.
// Lines with the library, which an earlier merge has left, are not repeated.
func MergePreload(library string, image []byte) []byte {
	merged := []byte(library + "\n")
	for line := range bytes.Lines(image) {
		if string(bytes.TrimSpace(line)) != library {
			merged = append(merged, line...)
		}
	}
	if merged[len(merged)-1] != '\n' {
		merged = append(merged, '\n')
	}
	return merged
}
