package ociapi

// What a helper tells of all the containers that a container runtime has, be they weir's or not.

import (
	"path/filepath"
	"strings"
	"time"
)

// ListingPath is where a helper tells of containers.
const ListingPath = Prefix + "listing"

// Bounds of what is told of containers. More is refused.
const (
	// ListedMax is how many containers a runtime may have.
	ListedMax = 4096
	// NameBytesMax is how long an id, a name or an image may be.
	NameBytesMax = 512
	// ListingBytesMax is how long the containers of one Listing may be, as JSON.
	ListingBytesMax = 48 << 10
)

// Key names a container among all that a container runtime has.
type Key struct {
	Namespace string `json:"namespace"` // the runtime's, not a pod's
	ID        string `json:"id"`
}

// KeyOf reads out of the path of a bundle which of containerd's containers it is; ok is false for
// bundles of other runtimes.
func KeyOf(bundle string) (key Key, ok bool) {
	parent, id := filepath.Split(filepath.Clean(bundle))
	tasks, namespace := filepath.Split(filepath.Clean(parent))
	ok = strings.HasPrefix(filepath.Base(tasks), "io.containerd.runtime.v")
	if !ok {
		return Key{}, false
	}
	return Key{namespace, id}, true
}

// Listed is a container as its runtime has it. Empty fields are not known.
type Listed struct {
	Key
	Name         string            `json:"name"` // in its pod, or as its user calls it
	PodNamespace string            `json:"pod_namespace"`
	Pod          string            `json:"pod"`
	PodUID       string            `json:"pod_uid"`
	Image        string            `json:"image"`
	Command      []string          `json:"command"` // for people
	Labels       map[string]string `json:"labels"`  // the container's, in which runtimes put the image's
	Created      time.Time         `json:"created"`
	PID          int               `json:"pid"` // of its init, in the caller's pid namespace; 0: there is none
	// Running: its init has been started and has not ended.
	Running bool `json:"running"`
	HasGPU  bool `json:"has_gpu"`
	// AllDevices: see oci.Facts.
	AllDevices bool `json:"all_devices"`
	// Asks are weir's annotations that speak of it.
	Asks map[string]string `json:"asks"`
	// Others are the names of those that name another container of its pod.
	Others []string `json:"others"`
}

// Listing is one message of a helper. All that a runtime has is told in one or several of the same
// Generation, the first of which has Begin and the last of which has End set; what comes after that
// changes it. With Lost set it says only that the runtime cannot be asked any more, and why.
type Listing struct {
	Runtime    string   `json:"runtime"` // for people: "containerd at /run/containerd/containerd.sock"
	Generation uint64   `json:"generation"`
	Begin      bool     `json:"begin"`
	End        bool     `json:"end"`
	Containers []Listed `json:"containers"` // new ones and those that have changed
	Gone       []Key    `json:"gone"`
	Lost       string   `json:"lost"`
}

// ListingAnswer is the answer to a Listing.
type ListingAnswer struct {
	SchemaVersion int `json:"schema_version"`
	// Again asks for everything: the agent does not have what this Listing would change.
	Again bool `json:"again"`
}

// List tells of containers. again is true where the agent wants to be told of all.
func (c Client) List(listing Listing) (again bool, err error) {
	var answer ListingAnswer
	err = c.call(ListingPath, listing, &answer)
	return answer.Again, err
}
