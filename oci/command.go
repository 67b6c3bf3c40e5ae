package oci

// The command of a container, as it is shown to people.

import "strings"

// commandBytesMax is how much of a command is worth showing, in bytes of all its words.
const commandBytesMax = 512

// shown cuts a command to what is worth showing.
func shown(command []string) (short []string) {
	for room := commandBytesMax; len(command) > 0 && room > 0; command = command[1:] {
		word := strings.ToValidUTF8(command[0][:min(len(command[0]), room)], "")
		short = append(short, word)
		room -= len(word) + 1
	}
	return short
}
