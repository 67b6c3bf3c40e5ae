package policy

// Tests of decisions.

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/agent/config"
	"weir/oci/annotation"
)

const gib = int64(1) << 30

func pointer[T any](value T) *T { return &value }

var (
	node = Node{GPUs: []GPU{
		{"0", "GPU-aaaa1111", 24 * gib}, {"1:0", "MIG-bbbb", 12 * gib}, {"1:1", "MIG-cccc", 12 * gib},
		{"2", "GPU-aaaa2222", 80 * gib},
	}, SwapMax: 64 * gib}
	bare   = Container{Namespace: "team-a", Image: "docker.io/acme/llm:1"}
	served = Container{Namespace: "team-a", Image: "docker.io/acme/llm:1", HasGPU: true}
	other  = Container{Namespace: "elsewhere", Image: "docker.io/library/x:1"}
	rules  = []config.ContainerRule{
		{Namespace: "*", Image: "*/acme/*", Memory: pointer(4 * gib)},
		{Namespace: "team-*", Image: "*", Memory: pointer(6 * gib), MemoryMax: pointer(16 * gib),
			SwapMax: pointer(8 * gib), WeightMax: pointer(4.0)},
		{Namespace: "team-a", Image: "*", MemoryMax: pointer(10 * gib), Weight: pointer(2.0)},
		{Namespace: "other", Image: "*", MemoryMax: pointer(gib)},
	}
)

func TestUnasked(t *testing.T) {
	for _, test := range []struct {
		unasked   string
		container Container
		action    Action
		reason    string
	}{
		{"pass", bare, Pass, ""}, {"default", bare, Pass, ""}, {"refuse", bare, Pass, ""},
		{"pass", served, Pass, "no annotation of weir's"}, {"", served, Pass, "no annotation"},
		{"default", served, Grant, ""}, {"refuse", served, Refuse, "unasked_gpu"},
	} {
		got := Decide(annotation.Request{}, Policy{test.unasked, rules}, test.container, node)
		if got.Action != test.action || !strings.Contains(got.Reason, test.reason) ||
			(test.reason == "") != (got.Reason == "") {
			t.Errorf("%s, GPU %v: %v %q", test.unasked, test.container.HasGPU, got.Action, got.Reason)
		}
		if got.Action == Grant && (*got.Limits.Memory != 4*gib || *got.Limits.Weight != 2 || got.GPUs != nil) {
			t.Errorf("the default is %+v", got)
		}
	}
}

// Where nobody is to have a GPU without a cap, asking for something else gives none, be the GPU weir's or not.
func TestRefusesWithoutACap(t *testing.T) {
	weight := 2.0
	for _, request := range []annotation.Request{{Weight: &weight}, {Affinity: "x"}, {Report: annotation.ReportCap}, {GPUs: []string{"0"}}} {
		for _, container := range []Container{{Namespace: "nobody"}, {Namespace: "nobody", HasGPU: len(request.GPUs) == 0}} {
			got := Decide(request, Policy{UnaskedGPU: config.UnaskedRefuse}, container, node)
			if got.Action != Refuse || !strings.Contains(got.Reason, "no memory cap") {
				t.Errorf("%+v: %v %q", request, got.Action, got.Reason)
			}
			for _, unasked := range []string{config.UnaskedPass, config.UnaskedDefault} {
				if got := Decide(request, Policy{UnaskedGPU: unasked}, container, node); got.Action != Grant {
					t.Errorf("%s, %+v: %v %q", unasked, request, got.Action, got.Reason)
				}
			}
		}
		if got := Decide(request, Policy{config.UnaskedRefuse, rules}, bare, node); got.Action != Grant || got.Limits.Memory == nil {
			t.Errorf("%+v, with a default: %v %q", request, got.Action, got.Reason)
		}
	}
}

func TestGrants(t *testing.T) {
	for name, test := range map[string]struct {
		request   annotation.Request
		rules     []config.ContainerRule
		container Container
		limits    Limits
		gpus      []string
	}{
		"a cap": {annotation.Request{Memory: pointer(8 * gib)}, nil, bare,
			Limits{Memory: pointer(8 * gib), Report: "cap"}, []string{"GPU-aaaa1111"}},
		"only a weight": {annotation.Request{Weight: pointer(3.0)}, nil, served,
			Limits{Weight: pointer(3.0), Report: "cap"}, nil},
		"the first default, within the lowest ceiling": {annotation.Request{Report: "virtual"}, rules, bare,
			Limits{Memory: pointer(4 * gib), Weight: pointer(2.0), Report: "virtual"}, []string{"GPU-aaaa1111"}},
		"a ceiling without a default": {annotation.Request{Weight: pointer(1.0)}, rules[2:3], bare,
			Limits{Memory: pointer(10 * gib), Weight: pointer(1.0), Report: "cap"}, []string{"GPU-aaaa1111"}},
		"a default over the ceiling": {annotation.Request{Weight: pointer(1.0)},
			[]config.ContainerRule{{Namespace: "*", Image: "*", Memory: pointer(9 * gib), MemoryMax: pointer(gib)}}, bare,
			Limits{Memory: pointer(gib), Weight: pointer(1.0), Report: "cap"}, []string{"GPU-aaaa1111"}},
		"a ceiling below the weight of all": {annotation.Request{Memory: pointer(gib)},
			[]config.ContainerRule{{Namespace: "*", Image: "*", WeightMax: pointer(0.5), SwapMax: pointer(gib)}}, bare,
			Limits{Memory: pointer(gib), Weight: pointer(0.5), Report: "cap"}, []string{"GPU-aaaa1111"}},
		"just the ceiling": {annotation.Request{Memory: pointer(10 * gib), Swap: pointer(8 * gib),
			Weight: pointer(4.0)}, rules, bare,
			Limits{pointer(10 * gib), pointer(8 * gib), pointer(4.0), "cap"}, []string{"GPU-aaaa1111"}},
		"no swap": {annotation.Request{Swap: pointer(int64(0))}, nil, bare,
			Limits{Swap: pointer(int64(0)), Report: "cap"}, []string{"GPU-aaaa1111"}},
		"the first that are large enough": {annotation.Request{Memory: pointer(20 * gib), Count: 2}, nil, bare,
			Limits{Memory: pointer(20 * gib), Report: "cap"}, []string{"GPU-aaaa1111", "GPU-aaaa2222"}},
		"by any name": {annotation.Request{GPUs: []string{"2", "MIG-bbbb", "1:1", "GPU-aaaa1"}}, nil, bare,
			Limits{Report: "cap"}, []string{"GPU-aaaa2222", "MIG-bbbb", "MIG-cccc", "GPU-aaaa1111"}},
		"auto": {annotation.Request{GPUs: []string{"auto"}, Memory: pointer(30 * gib)}, nil, bare,
			Limits{Memory: pointer(30 * gib), Report: "cap"}, []string{"GPU-aaaa2222"}},
	} {
		got := Decide(test.request, Policy{"pass", test.rules}, test.container, node)
		want := Decision{Action: Grant, Limits: test.limits, GPUs: test.gpus}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A ceiling by image holds for a container whose image could not be learned; where no rule by image may be its
// own, nothing changes.
func TestUnknownImage(t *testing.T) {
	rules := []config.ContainerRule{
		{Namespace: "team-*", Image: "*", Memory: pointer(8 * gib), MemoryMax: pointer(16 * gib), Weight: pointer(2.0)},
		{Namespace: "*", Image: "*/small:*", Memory: pointer(2 * gib), MemoryMax: pointer(4 * gib), SwapMax: pointer(gib),
			Weight: pointer(0.5), WeightMax: pointer(1.0)},
		{Namespace: "other", Image: "x", MemoryMax: pointer(gib)},
	}
	unknown := Container{Namespace: "team-a", HasGPU: true}
	known := Container{Namespace: "team-a", HasGPU: true, Image: "docker.io/acme/llm:1"}
	for _, test := range []struct {
		container Container
		rules     []config.ContainerRule
		memory    int64
		weight    float64
		noted     bool
	}{
		{known, rules, 8 * gib, 2, false}, {unknown, rules, 2 * gib, 0.5, true}, {unknown, rules[:1], 8 * gib, 2, false},
		{unknown, []config.ContainerRule{rules[0], rules[2]}, 8 * gib, 2, false},
	} {
		got := Decide(annotation.Request{}, Policy{"default", test.rules}, test.container, node)
		if got.Action != Grant || *got.Limits.Memory != test.memory || *got.Limits.Weight != test.weight ||
			(got.Note != "") != test.noted {
			t.Errorf("%+v under %d rules: %+v", test.container, len(test.rules), got)
		}
	}
	got := Decide(annotation.Request{Memory: pointer(5 * gib)}, Policy{"pass", rules}, unknown, node)
	want := `weir/memory: 5GiB is over 4GiB, the lowest ceiling that weir.toml sets for namespace "team-a" and any image: ` +
		`the image is not known`
	if got.Action != Refuse || !strings.HasPrefix(got.Reason, want) || !strings.Contains(got.Reason, "ask for at most that") {
		t.Errorf("%v %q", got.Action, got.Reason)
	}
	if got := Decide(annotation.Request{Memory: pointer(4 * gib)}, Policy{"pass", rules}, unknown, node); got.Action != Grant {
		t.Errorf("%+v", got)
	}
}

// A container that may use every device of the node is shown, and neither refused nor capped unasked.
func TestAllDevices(t *testing.T) {
	privileged := Container{Namespace: "team-a", Image: "kube-proxy:1", AllDevices: true}
	for _, unasked := range []string{"pass", "default", "refuse"} {
		got := Decide(annotation.Request{}, Policy{unasked, rules}, privileged, node)
		if got.Action != Pass || got.Reason != AllDevicesReason {
			t.Errorf("%s: %+v", unasked, got)
		}
		if got := Decide(annotation.Request{}, Policy{unasked, rules}, privileged, Node{}); got.Action != Pass || got.Reason != "" {
			t.Errorf("%s, on a node without a GPU: %+v", unasked, got)
		}
	}
	given := privileged
	given.HasGPU = true
	if got := Decide(annotation.Request{}, Policy{"refuse", rules}, given, node); got.Action != Refuse {
		t.Errorf("one that was given a GPU: %+v", got)
	}
	if got := Decide(annotation.Request{Memory: pointer(gib)}, Policy{"pass", rules}, privileged, node); got.Action != Grant {
		t.Errorf("one that asks: %+v", got)
	}
}

// What the configuration gives is written for many nodes: a cap of its that is over the card is all of the card.
func TestDefaultOverTheCard(t *testing.T) {
	large := []config.ContainerRule{{Namespace: "*", Image: "*", MemoryMax: pointer(100 * gib)}}
	for name, test := range map[string]struct {
		request   annotation.Request
		container Container
		gpus      []string
	}{
		"unasked":           {annotation.Request{}, served, nil},
		"asks for others":   {annotation.Request{Weight: pointer(1.0)}, bare, []string{"GPU-aaaa2222"}},
		"two":               {annotation.Request{Count: 2}, bare, []string{"GPU-aaaa2222", "GPU-aaaa1111"}},
		"names a small one": {annotation.Request{GPUs: []string{"1:0"}}, bare, []string{"MIG-bbbb"}},
	} {
		got := Decide(test.request, Policy{"default", large}, test.container, node)
		if got.Action != Grant || *got.Limits.Memory != 80*gib || !slices.Equal(got.GPUs, test.gpus) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A default serves many nodes: where there is no swap it keeps nobody from starting.
func TestDefaultSwapOnANodeWithout(t *testing.T) {
	rules := []config.ContainerRule{{Namespace: "*", Image: "*", Memory: pointer(int64(gib)), Swap: pointer(int64(gib))}}
	got := Decide(annotation.Request{Weight: pointer(2.0)}, Policy{"pass", rules}, bare, Node{node.GPUs, "GPU 0 has none", 64 * gib})
	if got.Action != Grant {
		t.Errorf("%+v", got)
	}
	got = Decide(annotation.Request{Weight: pointer(2.0)}, Policy{"pass", rules}, bare, Node{node.GPUs, "", gib / 2})
	if got.Action != Grant || *got.Limits.Swap != gib/2 {
		t.Errorf("%+v", got)
	}
}

func TestWithoutEffect(t *testing.T) {
	request := annotation.Request{Memory: pointer(int64(gib)), MemoryMin: pointer(int64(gib)), Affinity: "a", Task: "b"}
	got := Decide(request, Policy{"pass", nil}, bare, node).WithoutEffect
	if diff := cmp.Diff([]string{"weir/affinity", "weir/task", "weir/memory-min"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	littleHost := Node{node.GPUs, "", gib / 2}
	noSwap := Node{node.GPUs, "GPU 0 has no concurrent managed access", 64 * gib}
	for _, test := range []struct {
		request   annotation.Request
		container Container
		node      Node
		want      string
	}{
		{annotation.Request{Memory: pointer(11 * gib)}, bare, node,
			`weir/memory: 11GiB is over the ceiling of 10GiB that weir.toml sets for namespace "team-a"`},
		{annotation.Request{MemoryMax: pointer(11 * gib)}, bare, node, `weir/memory-max: 11GiB is over the ceiling`},
		{annotation.Request{MemoryMin: pointer(11 * gib)}, bare, node, `weir/memory-min: 11GiB is over the ceiling`},
		{annotation.Request{Swap: pointer(9 * gib)}, bare, node, `weir/swap: 9GiB is over the ceiling of 8GiB`},
		{annotation.Request{Weight: pointer(5.0)}, bare, node, `weir/weight: 5 is over the ceiling of 4`},
		{annotation.Request{WeightMax: pointer(5.0)}, bare, node, `weir/weight-max: 5 is over the ceiling of 4`},
		{annotation.Request{Swap: pointer(gib)}, bare, littleHost, `weir/swap: 1GiB is more than the 512MiB of host memory`},
		{annotation.Request{Swap: pointer(gib)}, bare, noSwap, `weir/swap: GPU 0 has no concurrent managed access; leave`},
		{annotation.Request{Swap: pointer(gib)}, other, node, `weir/swap: 1GiB beyond no cap`},
		{annotation.Request{Memory: pointer(100 * gib)}, other, node,
			`weir/memory: 100GiB is more than GPU 2, the largest, has (80GiB); ask for at most that`},
		{annotation.Request{Memory: pointer(60 * gib), Count: 2}, other, node,
			`weir/memory: 60GiB is more than GPU 0, the last of the 2 largest GPUs, has (24GiB); ask for at most that`},
		{annotation.Request{Count: 5}, bare, node, `weir/count: 5, but the node has 4; its GPUs are 0 (GPU-aaaa1111, 24GiB)`},
		{annotation.Request{GPUs: []string{"7"}}, bare, node, `weir/gpu: "7" is no GPU of this node; its GPUs are 0 (`},
		{annotation.Request{GPUs: []string{"GPU-aaaa"}}, bare, node, `weir/gpu: "GPU-aaaa" is the beginning of 2 UUIDs`},
		{annotation.Request{GPUs: []string{"MIG-bbb"}}, bare, node, `weir/gpu: "MIG-bbb" is no GPU`},
		{annotation.Request{GPUs: []string{"0", "GPU-aaaa1111"}}, bare, node, `GPU 0, which is named twice`},
		{annotation.Request{GPUs: []string{"1:0"}, Memory: pointer(20 * gib)}, other, node,
			`weir/memory: 20GiB is more than GPU 1:0 has (12GiB); ask for at most that`},
		{annotation.Request{GPUs: []string{"0"}}, served, node, `weir/gpu: the container already has a GPU`},
		{annotation.Request{Profile: "1g.10gb"}, bare, node, `weir/profile: `},
		{annotation.Request{Memory: pointer(gib)}, bare, Node{}, `the agent knows no GPU`},
	} {
		got := Decide(test.request, Policy{"pass", rules}, test.container, test.node)
		if got.Action != Refuse || !strings.Contains(got.Reason, test.want) || strings.Contains(got.Reason, "\n") {
			t.Errorf("%+v: %v %q\nwant it refused with %q", test.request, got.Action, got.Reason, test.want)
		}
	}
}

// Whatever the rules are: what is granted is under every ceiling that matches and fits the GPUs, what is
// refused has a reason, and one who asks for less than was granted is granted it too.
func TestCeilingsHold(t *testing.T) {
	size := rapid.Custom(func(t *rapid.T) *int64 {
		if rapid.Bool().Draw(t, "nil") {
			return nil
		}
		return pointer(rapid.Int64Range(1, 100).Draw(t, "GiB") * gib)
	})
	rule := rapid.Custom(func(t *rapid.T) config.ContainerRule {
		return config.ContainerRule{
			Namespace: rapid.SampledFrom([]config.Pattern{"*", "team-*", "x"}).Draw(t, "namespace"),
			Image:     rapid.SampledFrom([]config.Pattern{"*", "*acme*", "x"}).Draw(t, "image"),
			Memory:    size.Draw(t, "memory"), MemoryMax: size.Draw(t, "memory_max"), SwapMax: size.Draw(t, "swap_max"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{"default", rapid.SliceOfN(rule, 0, 4).Draw(t, "rules")}
		request := annotation.Request{Memory: size.Draw(t, "asked"), Swap: size.Draw(t, "swap")}
		container := bare
		container.HasGPU = rapid.Bool().Draw(t, "has GPU")
		got := Decide(request, policy, container, node)
		switch got.Action {
		case Refuse:
			if got.Reason == "" {
				t.Fatal("refused without a reason")
			}
		case Grant:
			for _, rule := range policy.Rules {
				if rule.Matches(container.Namespace, container.Image) &&
					(exceeds(got.Limits.Memory, rule.MemoryMax) || exceeds(got.Limits.Swap, rule.SwapMax)) {
					t.Fatalf("%+v is over %+v", got.Limits, rule)
				}
			}
			if m := got.Limits.Memory; m != nil && *m > 80*gib {
				t.Fatalf("%d is more than any GPU has", *m)
			}
			if request.Memory != nil {
				less := request
				less.Memory = pointer(rapid.Int64Range(1, *request.Memory).Draw(t, "less"))
				if again := Decide(less, policy, container, node); again.Action != Grant {
					t.Fatalf("%d is granted, %d is not: %s", *request.Memory, *less.Memory, again.Reason)
				}
			}
		}
	})
}

func exceeds(got, most *int64) bool { return got != nil && most != nil && *got > *most }
