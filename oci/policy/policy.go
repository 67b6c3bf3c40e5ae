// Package policy decides what a container that is about to start is given. It is pure: the request, the
// configuration and what is known of container and node go in, a decision comes out. Invariants: what is
// granted is within every ceiling that matches and can be had on the node; a refusal is one line that
// names what was asked, by its annotation, and what is accepted.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/agent/config"
	"weir/oci/annotation"
)

// Action is what becomes of a container.
type Action int

const (
	Pass   Action = iota // it starts as it is
	Grant                // it starts under weir, with the decision's limits
	Refuse               // it does not start
)

func (a Action) String() string {
	return [...]string{"pass", "grant", "refuse"}[a]
}

// Why a container that asks for nothing passes and is not enforced.
const (
	UnaskedReason    = "it has a GPU and no annotation of weir's"
	AllDevicesReason = "it may use all devices of the node, GPUs too (privileged), and has no annotation of weir's"
)

// GPU is one GPU, or MIG device, of the node.
type GPU struct {
	Name        string // as people name it: "0", or "1:0" of a MIG device
	UUID        string
	MemoryBytes int64
}

// Node is what decisions depend on of the node.
type Node struct {
	GPUs []GPU
	// NoSwap tells why swap cannot be had on this node; empty: it can. It need be known only if swap is asked for.
	NoSwap string
	// SwapMax is the most that any container of the node may have beyond its cap, in bytes.
	SwapMax int64
}

// Container is what decisions depend on of a container.
type Container struct {
	Namespace string // of its pod, or the container runtime's
	Image     string // empty: it could not be learned
	// HasGPU: it has a GPU from elsewhere (a device plugin, CDI, --gpus), which stays as it is.
	HasGPU bool
	// AllDevices: it may use all devices of the node, and so its GPUs, without having been given one.
	AllDevices bool
}

// Policy is what the configuration says of containers.
type Policy struct {
	UnaskedGPU string // config.UnaskedPass, UnaskedDefault or UnaskedRefuse
	Rules      []config.ContainerRule
}

// Limits are what a container is held to. Nil is "no limit". Sizes are bytes.
type Limits struct {
	Memory *int64 // on each GPU
	Swap   *int64
	Weight *float64
	Report string // annotation.ReportCap or ReportVirtual
}

// Decision is what becomes of a container.
type Decision struct {
	Action Action
	Limits Limits // of Grant
	// GPUs are the UUIDs of those whose device nodes it is to be given; none where it has some.
	GPUs []string
	// WithoutEffect are annotations of its that are accepted and that nothing acts on yet.
	WithoutEffect []string
	// Reason is why it is refused; or why one with a GPU passes and is not enforced; else empty.
	Reason string
	// Note is what else the operator has to know of a grant; else empty.
	Note string
}

// Decide decides on one container.
func Decide(request annotation.Request, policy Policy, container Container, node Node) Decision {
	if request.IsZero() {
		switch {
		case container.HasGPU:
		case container.AllDevices && len(node.GPUs) > 0:
			// Every node has such: they are shown, and not taken for programs that use a GPU.
			return Decision{Action: Pass, Reason: AllDevicesReason}
		default:
			return Decision{Action: Pass}
		}
		switch policy.UnaskedGPU {
		case config.UnaskedRefuse:
			return Decision{Action: Refuse, Reason: "it has a GPU and asks for no part of it, which " +
				"unasked_gpu = \"refuse\" in weir.toml forbids; give it an annotation such as weir/memory=4GiB"}
		case config.UnaskedDefault:
		default:
			return Decision{Action: Pass, Reason: UnaskedReason}
		}
	}
	d := &deciding{request, policy, container, node}
	limits, err := d.limits()
	if err != nil {
		return Decision{Action: Refuse, Reason: err.Error()}
	}
	if limits.Memory == nil && policy.UnaskedGPU == config.UnaskedRefuse {
		return Decision{Action: Refuse, Reason: "it asks for no memory cap, and nobody has a GPU without one where weir.toml " +
			"has unasked_gpu = \"refuse\"; give it an annotation such as weir/memory=4GiB"}
	}
	limits.Memory = d.withinCards(limits.Memory)
	gpus, err := d.gpus(limits)
	if err != nil {
		return Decision{Action: Refuse, Reason: err.Error()}
	}
	if container.HasGPU {
		gpus = nil
	}
	decision := Decision{Action: Grant, Limits: limits, GPUs: gpus, WithoutEffect: request.WithoutEffect()}
	if d.byAnyImage() {
		decision.Note = unknownImage
	}
	return decision
}

// unknownImage is what is said where a container's image matters and could not be learned.
const unknownImage = "its image is not known, so the strictest of the rules by image in weir.toml holds"

// deciding is one decision in the making.
type deciding struct {
	request   annotation.Request
	policy    Policy
	container Container
	node      Node
}

// limits brings together what is asked, the defaults, and the ceilings.
func (d *deciding) limits() (limits Limits, err error) {
	rule := d.rule()
	memory := first(rule.Memory, rule.MemoryMax)
	limits.Memory, err = within(d, "memory", d.request.Memory, memory, rule.MemoryMax, config.FormatSize)
	if err != nil {
		return limits, err
	}
	limits.Swap, err = within(d, "swap", d.request.Swap, rule.Swap, rule.SwapMax, config.FormatSize)
	if err != nil {
		return limits, err
	}
	weight, number := rule.Weight, func(w float64) string { return fmt.Sprint(w) }
	if rule.WeightMax != nil && *rule.WeightMax < weightUnset {
		weight = first(weight, rule.WeightMax)
	}
	limits.Weight, err = within(d, "weight", d.request.Weight, weight, rule.WeightMax, number)
	if err != nil {
		return limits, err
	}
	for _, bound := range []struct {
		name       string
		asked, max *int64
	}{
		{"memory-max", d.request.MemoryMax, rule.MemoryMax},
		{"memory-min", d.request.MemoryMin, rule.MemoryMax},
	} {
		if bound.asked != nil && bound.max != nil && *bound.asked > *bound.max {
			return limits, over(d, bound.name, config.FormatSize(*bound.asked), config.FormatSize(*bound.max))
		}
	}
	if w := d.request.WeightMax; w != nil && rule.WeightMax != nil && *w > *rule.WeightMax {
		return limits, over(d, "weight-max", number(*w), number(*rule.WeightMax))
	}
	if s := limits.Swap; s != nil && *s > 0 {
		if d.node.NoSwap != "" && d.request.Swap != nil { // a default serves many nodes
			return limits, fmt.Errorf("weir/swap: %s; leave it out, or set it to off", d.node.NoSwap)
		}
		if *s > d.node.SwapMax && d.request.Swap != nil {
			return limits, fmt.Errorf("weir/swap: %s is more than the %s of host memory that containers' swap may take on this "+
				"node (swap_host_limit in weir.toml); ask for less", config.FormatSize(*s), config.FormatSize(d.node.SwapMax))
		}
		limits.Swap = lowest(limits.Swap, &d.node.SwapMax)
		if limits.Memory == nil {
			return limits, fmt.Errorf("weir/swap: %s beyond no cap is no limit; ask for weir/memory too",
				config.FormatSize(*s))
		}
	}
	limits.Report = d.request.Report
	if limits.Report == "" {
		limits.Report = annotation.ReportCap
	}
	return limits, nil
}

// rule is what all rules that match say together: of each kind the first default and the lowest ceiling. Where
// the image is not known, those by image may all be the container's, so the lowest default holds, too.
func (d *deciding) rule() (all config.ContainerRule) {
	unknown := d.byAnyImage()
	for i := range d.policy.Rules {
		rule := &d.policy.Rules[i]
		if !d.matches(rule) {
			continue
		}
		all.Memory = byDefault(all.Memory, rule.Memory, unknown)
		all.Swap = byDefault(all.Swap, rule.Swap, unknown)
		all.Weight = byDefault(all.Weight, rule.Weight, unknown)
		all.MemoryMax = lowest(all.MemoryMax, rule.MemoryMax)
		all.SwapMax = lowest(all.SwapMax, rule.SwapMax)
		all.WeightMax = lowest(all.WeightMax, rule.WeightMax)
	}
	return all
}

// matches tells whether a rule is the container's, as far as is known.
func (d *deciding) matches(rule *config.ContainerRule) bool {
	if d.container.Image == "" {
		return rule.Namespace.Matches(d.container.Namespace)
	}
	return rule.Matches(d.container.Namespace, d.container.Image)
}

// byAnyImage tells whether a rule by image holds only because the image is not known.
func (d *deciding) byAnyImage() bool {
	return d.container.Image == "" && slices.ContainsFunc(d.policy.Rules, func(rule config.ContainerRule) bool {
		return rule.ByImage() && rule.Namespace.Matches(d.container.Namespace)
	})
}

// byDefault is the default of two rules, of which a comes first.
func byDefault[T int64 | float64](a, b *T, strict bool) *T {
	if strict {
		return lowest(a, b)
	}
	return first(a, b)
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func lowest[T int64 | float64](a, b *T) *T {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// weightUnset is the weight of a container for which none is set.
const weightUnset = 1

// within is what is asked, else the default. What is asked beyond the ceiling is refused; a default
// beyond it is cut to it, as the operator wrote both.
func within[T int64 | float64](d *deciding, name string, asked, byDefault, most *T,
	format func(T) string) (*T, error) {
	if asked == nil {
		if byDefault == nil {
			return nil, nil
		}
		return lowest(byDefault, most), nil
	}
	if most != nil && *asked > *most {
		return nil, over(d, name, format(*asked), format(*most))
	}
	return asked, nil
}

func over(d *deciding, name, asked, most string) error {
	if d.byAnyImage() {
		return fmt.Errorf("weir/%s: %s is over %s, the lowest ceiling that weir.toml sets for namespace %q and any "+
			"image: the image is not known, since no containerd tells the agent of it (`weir events` may say why); ask for "+
			"at most that, or start it again once one does", name, asked, most, d.container.Namespace)
	}
	return fmt.Errorf("weir/%s: %s is over the ceiling of %s that weir.toml sets for namespace %q and "+
		"image %q", name, asked, most, d.container.Namespace, d.container.Image)
}

// gpus finds those that are asked for, or, where it has and names none, those that fit first.
func (d *deciding) gpus(limits Limits) ([]string, error) {
	if len(d.node.GPUs) == 0 {
		return nil, fmt.Errorf("the agent knows no GPU, so there is none that a limit could hold on; " +
			"restart it once the driver is there")
	}
	if d.request.Profile != "" {
		return nil, fmt.Errorf("weir/profile: this version makes no MIG instances; make one by hand and name it " +
			"with weir/gpu")
	}
	if asked := d.request.GPUs; len(asked) > 0 && asked[0] != annotation.Auto {
		return d.named(limits)
	}
	count := max(d.request.Count, 1)
	if count > len(d.node.GPUs) {
		return nil, fmt.Errorf("weir/count: %d, but the node has %d; its GPUs are %s", count,
			len(d.node.GPUs), d.list())
	}
	var fit, small []string
	for _, gpu := range d.node.GPUs {
		if limits.Memory == nil || *limits.Memory <= gpu.MemoryBytes {
			fit = append(fit, gpu.UUID)
		} else {
			small = append(small, gpu.UUID)
		}
	}
	if d.request.Memory == nil {
		fit = append(fit, small...) // a cap that nobody asked for holds on these by their size
	}
	if len(fit) < count {
		return nil, fmt.Errorf("weir/memory: %w", OverCard(*limits.Memory, d.node.GPUs, count))
	}
	return fit[:count], nil
}

// withinCards cuts a cap that the configuration gives to what there is: the operator wrote it for many nodes.
func (d *deciding) withinCards(memory *int64) *int64 {
	if memory == nil || d.request.Memory != nil || len(d.node.GPUs) == 0 {
		return memory
	}
	most := largest(d.node.GPUs, 1).MemoryBytes
	return lowest(memory, &most)
}

// largest is the GPU that has the rank-th most memory, from 1 on.
func largest(gpus []GPU, rank int) GPU {
	sorted := slices.Clone(gpus)
	slices.SortStableFunc(sorted, func(a, b GPU) int { return cmp.Compare(b.MemoryBytes, a.MemoryBytes) })
	return sorted[rank-1]
}

// OverCard is the error of a cap that is asked for on each of count GPUs, and that not so many of these have room
// for; nil if they have. There are at least count.
func OverCard(bytes int64, gpus []GPU, count int) error {
	most := largest(gpus, count)
	if bytes <= most.MemoryBytes {
		return nil
	}
	which := "GPU " + most.Name
	switch {
	case count > 1:
		which = fmt.Sprintf("%s, the last of the %d largest GPUs,", which, count)
	case len(gpus) > 1:
		which += ", the largest,"
	}
	return fmt.Errorf("%s is more than %s has (%s); ask for at most that", config.FormatSize(bytes), which,
		config.FormatSize(most.MemoryBytes))
}

// named finds the GPUs that the request names.
func (d *deciding) named(limits Limits) ([]string, error) {
	if d.container.HasGPU {
		return nil, fmt.Errorf("weir/gpu: the container already has a GPU from elsewhere; leave weir/gpu out, " +
			"or let it ask for none there")
	}
	var uuids []string
	for _, ref := range d.request.GPUs {
		var found []GPU
		for _, gpu := range d.node.GPUs {
			if gpu.Name == ref || gpu.UUID == ref {
				found = []GPU{gpu}
				break
			}
			if len(ref) >= uuidPrefixMin && strings.HasPrefix(gpu.UUID, ref) {
				found = append(found, gpu)
			}
		}
		if len(found) != 1 {
			what := "no GPU of this node"
			if len(found) > 1 {
				what = fmt.Sprintf("the beginning of %d UUIDs", len(found))
			}
			return nil, fmt.Errorf("weir/gpu: %q is %s; its GPUs are %s", ref, what, d.list())
		}
		gpu := found[0]
		if d.request.Memory != nil {
			if err := OverCard(*d.request.Memory, found, 1); err != nil {
				return nil, fmt.Errorf("weir/memory: %w", err)
			}
		}
		for _, uuid := range uuids {
			if uuid == gpu.UUID {
				return nil, fmt.Errorf("weir/gpu: %q is GPU %s, which is named twice", ref, gpu.Name)
			}
		}
		uuids = append(uuids, gpu.UUID)
	}
	return uuids, nil
}

// uuidPrefixMin is how much of a UUID, "GPU-" included, names a GPU if no other begins so.
const uuidPrefixMin = 8

// listMax is how many GPUs a message lists.
const listMax = 8

// list describes the node's GPUs in a message.
func (d *deciding) list() string {
	var parts []string
	for i, gpu := range d.node.GPUs {
		if i == listMax {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%s, %s)", gpu.Name, gpu.UUID, config.FormatSize(gpu.MemoryBytes)))
	}
	return strings.Join(parts, ", ")
}
