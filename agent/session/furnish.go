package session

// What lies in the run directory for a container that a container runtime starts: its own directory is
// mounted in it, read-only.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"weir/agent/config"
	"weir/agent/control/ociapi"
	"weir/agent/store"
	"weir/oci"
)

// preloadName is the container's /etc/ld.so.preload in its directory.
const preloadName = "ld.so.preload"

// grant is what a container is given, from what is kept of it: the same each time.
func (n *Node) grant(spec store.Container) oci.Grant {
	dir := n.run.container(spec.ID)
	grant := oci.Grant{
		ID: spec.ID, SocketDir: dir, LibraryDir: filepath.Dir(spec.Library), PreloadFile: filepath.Join(dir, preloadName),
		Hook: n.opts.Hook, ControlSocket: filepath.Join(n.run.path, config.SocketName), Devices: spec.OCI.Devices,
		FixedImage: spec.OCI.FixedImage, ReadImage: spec.OCI.ReadImage,
	}
	if grant.FixedImage {
		grant.PreloadFile = ""
	}
	return grant
}

// furnish puts into the container's directory what it is to see there beside the socket: the place of
// the library, and its merged /etc/ld.so.preload.
func (n *Node) furnish(spec store.Container, preload string) error {
	grant := n.grant(spec)
	if err := ownDirectory(filepath.Join(grant.SocketDir, oci.LibraryPlace), 0o755); err != nil {
		return err
	}
	if grant.PreloadFile == "" {
		return nil
	}
	return writeOpen(grant.PreloadFile, oci.MergePreload(grant.Library(), []byte(preload)))
}

// leaveNote tells the hook that injects by itself what to inject.
func (n *Node) leaveNote(spec store.Container, grant oci.Grant) error {
	path := ociapi.NotePath(n.run.path, spec.OCI.Bundle)
	if err := ownDirectory(filepath.Dir(path), 0o711); err != nil {
		return fmt.Errorf("leaving a note for the hook: %w", err)
	}
	text, err := json.Marshal(ociapi.Note{Root: spec.OCI.Root, Grant: grant})
	if err == nil {
		err = writeOpen(path, text)
	}
	if err != nil {
		return fmt.Errorf("leaving a note for the hook: %w", err)
	}
	return nil
}

// unfurnish removes all that a container has in the run directory. The note is the next one's if that
// has begun from the same bundle. Called under mu.
func (n *Node) unfurnish(spec store.Container) error {
	err := os.RemoveAll(n.run.container(spec.ID))
	if spec.OCI == nil || n.byBundle(spec.OCI.Bundle) != nil {
		return err
	}
	noteErr := os.Remove(ociapi.NotePath(n.run.path, spec.OCI.Bundle))
	if errors.Is(noteErr, fs.ErrNotExist) {
		noteErr = nil
	}
	return errors.Join(err, noteErr)
}

// removeNotes removes notes of containers that are not kept. Called under mu.
func (n *Node) removeNotes() error {
	dir := filepath.Dir(ociapi.NotePath(n.run.path, "/"))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	kept := make(map[string]bool)
	for _, c := range n.containers {
		if c.spec.OCI != nil {
			kept[ociapi.NotePath(n.run.path, c.spec.OCI.Bundle)] = true
		}
	}
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); !kept[path] {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// writeOpen writes a file in one step that all may read, whatever the umask.
func writeOpen(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.WriteFile(temporary, content, 0o644)
	if err == nil {
		err = os.Chmod(temporary, 0o644)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	return err
}
