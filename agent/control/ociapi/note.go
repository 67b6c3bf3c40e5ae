package ociapi

// What the agent leaves for a hook that cannot speak with it: one that runs in the container's own user
// namespace may not connect to the control socket.

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"weir/oci"
)

// Note is what the createContainer hook needs to know of a container.
type Note struct {
	Root  string    `json:"root"`
	Grant oci.Grant `json:"grant"`
}

// NotePath is where the note of a container lies, for all to read. It lies below the run directory, by
// its bundle, which is all that the hook is told.
func NotePath(runDir, bundle string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(bundle)))
	return filepath.Join(runDir, "oci", hex.EncodeToString(sum[:8])+".json")
}
