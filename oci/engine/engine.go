// Package engine knows what Docker and Podman have of a container and do not write into its specification: its name and
// its image, and which of its annotations are the image's. Each keeps them in files of its own, whose place follows from
// the bundle, or from what is mounted out of the container's own directory. Invariants: a file says something only of the
// container whose id is in it; what cannot be read, or reads otherwise, is not known.
package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"weir/oci"
)

// recordBytesMax is more than such a file has.
const recordBytesMax = 16 << 20

// Told is what an engine has of a container. It is empty where the container is none of theirs.
type Told struct {
	Name, Image string
	// Manifest is the file of the image's manifest, whose annotations Podman gives to the container; empty: none has any.
	Manifest string
}

// Look is what the engine of the container with this id has of it. dir is its bundle; where that is empty only the
// specification tells where to look.
func Look(dir, id string, spec []byte) Told {
	var parts struct{ Mounts []oci.Mount }
	_ = json.Unmarshal(spec, &parts)                      // who reads it otherwise says what is wrong with it
	places := []string{filepath.Join(dir, "config.json")} // and then the files that are mounted out of such places
	for _, m := range parts.Mounts {
		places = append(places, m.Source)
	}
	for _, file := range places {
		told := ofDocker(filepath.Dir(file), id)
		if told.Name == "" {
			told = ofPodman(filepath.Dir(file), id)
		}
		if told.Name != "" {
			return told
		}
	}
	return Told{}
}

// OfImage are the annotations that the container has from its image.
func (t Told) OfImage() (map[string]string, error) {
	if t.Manifest == "" {
		return nil, nil
	}
	var manifest struct{ Annotations map[string]string }
	if err := readRecord(t.Manifest, &manifest); err != nil {
		return nil, err
	}
	return manifest.Annotations, nil
}

// ofDocker reads what Docker has in its directory of a container: ROOT/containers/ID.
func ofDocker(dir, id string) (told Told) {
	if filepath.Base(dir) != id || filepath.Base(filepath.Dir(dir)) != "containers" {
		return told
	}
	var record struct {
		ID, Name string
		Config   struct{ Image string }
	}
	if readRecord(filepath.Join(dir, "config.v2.json"), &record) != nil || record.ID != id {
		return told
	}
	return Told{Name: strings.TrimPrefix(record.Name, "/"), Image: record.Config.Image}
}

// ofPodman reads the list of containers above a container's directory: ROOT/DRIVER-containers/ID/userdata. Those that
// go with the machine are in a list of their own, below another root.
func ofPodman(dir, id string) (told Told) {
	above := filepath.Dir(filepath.Dir(dir))
	if filepath.Base(dir) != "userdata" || filepath.Base(filepath.Dir(dir)) != id ||
		!strings.HasSuffix(filepath.Base(above), "-containers") {
		return told
	}
	for _, list := range []string{"containers.json", "volatile-containers.json"} {
		var records []struct {
			ID, Image, Metadata string
			Names               []string
		}
		_ = readRecord(filepath.Join(above, list), &records)
		for _, record := range records {
			if record.ID == id && len(record.Names) > 0 {
				var more struct {
					Image string `json:"image-name"`
				}
				_ = json.Unmarshal([]byte(record.Metadata), &more) // then the image is not known
				told = Told{Name: record.Names[0], Image: more.Image}
				if record.Image != "" {
					images := strings.TrimSuffix(above, "-containers") + "-images"
					told.Manifest = filepath.Join(images, filepath.Base(record.Image), "manifest")
				}
				return told
			}
		}
	}
	return told
}

// readRecord reads a file of JSON into a value.
func readRecord(path string, into any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > recordBytesMax {
		return fmt.Errorf("%s is no file of at most %d bytes", path, recordBytesMax)
	}
	text, err := io.ReadAll(io.LimitReader(f, recordBytesMax))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
