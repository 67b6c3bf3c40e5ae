// Package annotation reads what a container asks of weir from its annotations. It is pure. Invariant:
// an annotation of weir's is either understood in full or is an error of one line that names it and
// says what is accepted; none is passed over.
package annotation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/agent/config"
	"weir/oci"
)

// Auto asks weir to choose the GPU.
const Auto = "auto"

// Reports are the two things that a container's reports of total memory can show.
const (
	ReportCap     = "cap"
	ReportVirtual = "virtual"
)

// Request is what a container asks for. A nil or empty field was not asked for. Sizes are bytes.
type Request struct {
	Memory *int64 // the cap on each GPU
	Swap   *int64 // on the host, beyond the cap; 0: asked for none ("off")
	Weight *float64
	Report string   // ReportCap or ReportVirtual
	GPUs   []string // by index ("0", "1:0" of a MIG device) or UUID; or Auto alone
	Count  int      // of GPUs
	// Profile is of a MIG instance, such as "1g.10gb".
	Profile  string
	Affinity string // containers of the same word are best put on the same card
	Task     string // the kind of work: a profile of the configuration
	// The bounds within which the agent may move a share.
	MemoryMin, MemoryMax *int64
	WeightMin, WeightMax *float64
}

// IsZero tells whether nothing is asked for.
func (r *Request) IsZero() bool {
	return r.Memory == nil && r.Swap == nil && r.Weight == nil && r.Report == "" &&
		len(r.GPUs) == 0 && r.Count == 0 && r.Profile == "" && r.Affinity == "" && r.Task == "" &&
		r.MemoryMin == nil && r.MemoryMax == nil && r.WeightMin == nil && r.WeightMax == nil
}

// WithoutEffect names the annotations that are accepted, and that nothing in this version acts on.
func (r *Request) WithoutEffect() (names []string) {
	for _, one := range []struct {
		name  string
		asked bool
	}{
		{"affinity", r.Affinity != ""}, {"task", r.Task != ""},
		{"memory-min", r.MemoryMin != nil}, {"memory-max", r.MemoryMax != nil},
		{"weight-min", r.WeightMin != nil}, {"weight-max", r.WeightMax != nil},
	} {
		if one.asked {
			names = append(names, oci.Prefix+one.name)
		}
	}
	return names
}

// Error says which annotation is not accepted, and why.
type Error struct {
	Annotation string // as it was written
	Reason     string // with what is accepted
}

func (e *Error) Error() string {
	return fmt.Sprintf("annotation %.100q: %s", e.Annotation, e.Reason)
}

// Parse reads the annotations that speak of the container with this name. One that names the container
// ("weir/memory.web") comes before one that does not. Annotations of other containers of the pod are
// not looked at: they are judged where they apply. Every error is an *Error.
func Parse(annotations map[string]string, container string) (Request, error) {
	written := make(map[string]string) // the annotation that counts, by what it sets
	for annotation := range annotations {
		name, own, ok := oci.Applies(annotation, container)
		if !ok {
			continue
		}
		if find(name) == nil {
			return Request{}, unknown(annotation, name)
		}
		if _, taken := written[name]; own || !taken {
			written[name] = annotation
		}
	}
	var request Request
	for _, kind := range kinds { // in one order, so that of two mistakes the same is named each time
		annotation, ok := written[kind.name]
		if !ok {
			continue
		}
		if err := kind.set(&request, annotations[annotation]); err != nil {
			return Request{}, &Error{annotation, err.Error()}
		}
	}
	if name, err := request.contradiction(); err != nil {
		return Request{}, &Error{written[name], err.Error()}
	}
	return request, nil
}

// Misnamed finds an annotation that names another container than the only one there is. Its error is an
// *Error.
func Misnamed(annotations map[string]string, container string) error {
	strangers := oci.Strangers(annotations, container)
	if len(strangers) == 0 {
		return nil
	}
	annotation := strangers[0]
	of, _ := oci.NamedBy(annotation)
	plain := strings.TrimSuffix(annotation, "."+of)
	return &Error{annotation, fmt.Sprintf("there is no container %.70q: this one is %.70q, and in no pod; accepted: %.70s, "+
		"or %.70[3]s.%[2]s", of, container, plain)}
}

// contradiction finds two annotations that cannot both be had, and names the one to change.
func (r *Request) contradiction() (string, error) {
	named := len(r.GPUs) > 0 && r.GPUs[0] != Auto
	switch {
	case exceeds(r.MemoryMin, r.MemoryMax):
		return "memory-min", fmt.Errorf("%s is more than weir/memory-max, %s",
			config.FormatSize(*r.MemoryMin), config.FormatSize(*r.MemoryMax))
	case exceeds(r.MemoryMin, r.Memory):
		return "memory-min", fmt.Errorf("%s is more than weir/memory, %s",
			config.FormatSize(*r.MemoryMin), config.FormatSize(*r.Memory))
	case exceeds(r.Memory, r.MemoryMax):
		return "memory", fmt.Errorf("%s is more than weir/memory-max, %s",
			config.FormatSize(*r.Memory), config.FormatSize(*r.MemoryMax))
	case exceeds(r.WeightMin, r.WeightMax):
		return "weight-min", fmt.Errorf("%v is more than weir/weight-max, %v", *r.WeightMin, *r.WeightMax)
	case exceeds(r.WeightMin, r.Weight):
		return "weight-min", fmt.Errorf("%v is more than weir/weight, %v", *r.WeightMin, *r.Weight)
	case exceeds(r.Weight, r.WeightMax):
		return "weight", fmt.Errorf("%v is more than weir/weight-max, %v", *r.Weight, *r.WeightMax)
	case named && r.Count != 0 && r.Count != len(r.GPUs):
		return "count", fmt.Errorf("%d, but weir/gpu names %d; leave it out, or ask for weir/gpu=%s",
			r.Count, len(r.GPUs), Auto)
	case named && r.Profile != "":
		return "profile", fmt.Errorf("weir chooses the place of an instance, but weir/gpu names one; "+
			"leave one of the two out, or ask for weir/gpu=%s", Auto)
	}
	return "", nil
}

// exceeds tells whether both are there and the first is the greater.
func exceeds[T int64 | float64](a, b *T) bool { return a != nil && b != nil && *a > *b }

// unknown says which annotations there are, and which was probably meant.
func unknown(annotation, name string) error {
	var names []string
	for _, kind := range kinds {
		names = append(names, oci.Prefix+kind.name)
	}
	if name == "" {
		return &Error{annotation, "it names nothing; accepted: " + strings.Join(names, ", ")}
	}
	return &Error{annotation, "unknown; accepted: " + strings.Join(names, ", ") +
		", each also with .CONTAINER"}
}

// Names are the annotations without their prefix, in the order of the documentation.
func Names() []string {
	names := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		names = append(names, kind.name)
	}
	return names
}

func find(name string) *kind {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if at < 0 {
		return nil
	}
	return &kinds[at]
}

// errEmpty is the reason for a value that is not there.
func errEmpty(wanted string) error { return errors.New("it is empty: want " + wanted) }
