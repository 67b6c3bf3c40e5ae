// What this program is.

package main

// version is that of this program, of the agent and of the library within it.
const version = "0.1.0"
