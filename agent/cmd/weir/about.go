// What this program is.

package main

import library "weir/cgo"

// version is that of this program and of the agent: the library's, unless the build sets another.
var version = library.Version
