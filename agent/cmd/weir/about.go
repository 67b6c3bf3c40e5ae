// What this program is.

package main

import library "weir/cgo"

// version is that of this program, of the agent and of the library within it.
const version = library.Version
