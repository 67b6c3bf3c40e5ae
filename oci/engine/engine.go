// Package engine knows what Docker and Podman have of a container and do not write into its specification: its name and
// its image. Each keeps them in a file of its own, whose place follows from the bundle, or from what is mounted out of the
// container's own directory. Invariants: a file says something only of the container whose id is in it; what cannot be
// read, or reads otherwise, is not known.
package engine

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"weir/oci"
)

// recordBytesMax is more than such a file has.
const recordBytesMax = 16 << 20

// Told is the name and image of the container with this id, as its engine has them, and empty where it is none of
// these. dir is its bundle; where that is empty only the specification tells where to look.
func Told(dir, id string, spec []byte) (name, image string) {
	var parts struct{ Mounts []oci.Mount }
	_ = json.Unmarshal(spec, &parts)                      // who reads it otherwise says what is wrong with it
	places := []string{filepath.Join(dir, "config.json")} // and then the files that are mounted out of such places
	for _, m := range parts.Mounts {
		places = append(places, m.Source)
	}
	for _, file := range places {
		if name, image = ofDocker(filepath.Dir(file), id); name == "" {
			name, image = ofPodman(filepath.Dir(file), id)
		}
		if name != "" {
			return name, image
		}
	}
	return "", ""
}

// ofDocker reads what Docker has in its directory of a container: ROOT/containers/ID.
func ofDocker(dir, id string) (name, image string) {
	if filepath.Base(dir) != id || filepath.Base(filepath.Dir(dir)) != "containers" {
		return "", ""
	}
	var record struct {
		ID, Name string
		Config   struct{ Image string }
	}
	if !readRecord(filepath.Join(dir, "config.v2.json"), &record) || record.ID != id {
		return "", ""
	}
	return strings.TrimPrefix(record.Name, "/"), record.Config.Image
}

// ofPodman reads the list of containers above a container's directory: ROOT/DRIVER-containers/ID/userdata. Those that
// go with the machine are in a list of their own, below another root.
func ofPodman(dir, id string) (name, image string) {
	above := filepath.Dir(filepath.Dir(dir))
	if filepath.Base(dir) != "userdata" || filepath.Base(filepath.Dir(dir)) != id ||
		!strings.HasSuffix(filepath.Base(above), "-containers") {
		return "", ""
	}
	for _, list := range []string{"containers.json", "volatile-containers.json"} {
		var records []struct {
			ID       string
			Names    []string
			Metadata string
		}
		readRecord(filepath.Join(above, list), &records)
		for _, record := range records {
			if record.ID == id && len(record.Names) > 0 {
				var more struct {
					Image string `json:"image-name"`
				}
				_ = json.Unmarshal([]byte(record.Metadata), &more) // then the image is not known
				return record.Names[0], more.Image
			}
		}
	}
	return "", ""
}

// readRecord reads a file of JSON into a value, and tells whether there was one.
func readRecord(path string, into any) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > recordBytesMax {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(f, recordBytesMax))
	return err == nil && json.Unmarshal(text, into) == nil
}
