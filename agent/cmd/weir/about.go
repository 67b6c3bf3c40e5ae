// What this program is.

package main

import "weir/cgo/lib"

// version is that of this program and of the agent: the library's, unless the build sets another.
var version = lib.Version
