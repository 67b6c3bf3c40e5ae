package metrics

// What a scrape tells.

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"weir/agent/control"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt anew")

// The sample node, as it is exposed. `go test ./agent/metrics -update` writes the file anew.
func TestExposition(t *testing.T) {
	const golden = "testdata/metrics.txt"
	r := registryOf(t, sample())
	if *update {
		found, err := r.Gather()
		var text bytes.Buffer
		for _, f := range found {
			if err == nil {
				_, err = expfmt.MetricFamilyToText(&text, f)
			}
		}
		if err == nil {
			err = os.WriteFile(golden, text.Bytes(), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := testutil.GatherAndCompare(r, file); err != nil {
		t.Error(err)
	}
}

// Names, units and helps keep to Prometheus' conventions, by the rules of `promtool check metrics`; and the sample has a
// metric of each family, so that these rules have seen all.
func TestNamesKeepToConventions(t *testing.T) {
	r := registryOf(t, sample())
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	found, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, f := range found {
		told[f.GetName()] = true
	}
	for _, f := range families {
		if !told[f.name] {
			t.Errorf("the sample has no %s", f.name)
		}
	}
	bad := promlint.New(strings.NewReader("# HELP weir_x_milliseconds x\n# TYPE weir_x_milliseconds counter\nweir_x_milliseconds 1\n"))
	if problems, err := bad.Lint(); err != nil || len(problems) == 0 {
		t.Errorf("the rules find nothing wrong with a bad name: %v, %v", problems, err)
	}
}

// No label tells processes apart, and those that the design names are there.
func TestLabelsAreBounded(t *testing.T) {
	allowed := []string{"container", "namespace", "pod", "gpu_uuid", "gpu", "name", "simulated", "version", "abi", "driver", "by",
		"reason", "state", "direction", "cause", "result", "type"}
	for _, f := range families {
		for _, l := range f.labels {
			if !slices.Contains(allowed, l) {
				t.Errorf("%s has the label %q", f.name, l)
			}
		}
	}
	s := sample()
	before := len(gather(t, registryOf(t, s)))
	s.node.Containers, s.node.Flows = s.node.Containers[:1], nil
	less := len(gather(t, registryOf(t, s)))
	if less >= before {
		t.Errorf("%d series, and %d with fewer containers", before, less)
	}
	alone, each := seriesOfContainer()
	s = sample()
	s.node.Containers, s.node.Flows = s.node.Containers[:1], s.node.Flows[:1]
	all := len(gather(t, registryOf(t, s)))
	s.node = control.Survey{Events: s.node.Events}
	none := len(gather(t, registryOf(t, s)))
	if got := all - none + 1; got != alone+each { // a summary is two series, and one entry here
		t.Errorf("a container has %d series, and the page says %d + %d", got, alone, each)
	}
}

// The series of a container that is gone are gone.
func TestGoneContainers(t *testing.T) {
	s := sample()
	r := registryOf(t, s)
	const one = "weir_container_memory_used_bytes container=trainer gpu_uuid=GPU-0 namespace=team-a pod=train-0"
	if got := gather(t, r)[one]; got != float64(12*gib) {
		t.Fatalf("used: %v", got)
	}
	s.mu.Lock()
	s.node.Containers = s.node.Containers[1:]
	s.mu.Unlock()
	for key := range gather(t, r) {
		if strings.Contains(key, "trainer") {
			t.Errorf("still there: %s", key)
		}
	}
}

// Of more containers than there are metrics of, those left out are counted.
func TestTooManyContainers(t *testing.T) {
	s := sample()
	s.node.Containers, s.node.Flows = nil, nil
	for i := range containersMax + 7 {
		s.node.Containers = append(s.node.Containers, control.Container{
			ID: fmt.Sprintf("%012d", i), Name: fmt.Sprintf("c%d", i), Identity: "path", State: "running"})
	}
	values := gather(t, registryOf(t, s))
	told := 0
	for key := range values {
		if strings.HasPrefix(key, "weir_container_weight ") {
			told++
		}
	}
	if told != containersMax || values["weir_agent_containers_left_out"] != 7 ||
		values["weir_agent_containers state=running"] != containersMax+7 {
		t.Errorf("%d told, %v left out, %v running", told, values["weir_agent_containers_left_out"],
			values["weir_agent_containers state=running"])
	}
}

// What cannot be told keeps the rest from nothing.
func TestFailures(t *testing.T) {
	s := sample()
	s.err = errors.New("no NVML")
	c := NewCollector(s, quiet)
	if got := testutil.CollectAndCount(c, "weir_container_enforced", "weir_agent_info"); got != 3 {
		t.Errorf("without information: %d", got)
	}
	s = sample()
	s.survey = errors.New("no survey")
	if got := testutil.CollectAndCount(NewCollector(s, quiet), "weir_container_enforced", "weir_agent_info"); got != 1 {
		t.Errorf("without a survey: %d", got)
	}
}

// docs/METRICS.md is what `make generate` writes.
func TestPageIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != Markdown() {
		t.Error("docs/METRICS.md is not current: run `make generate`")
	}
	for _, f := range families {
		if strings.Count(Markdown(), "`"+f.name+"` (") != 1 {
			t.Errorf("%s is not on the page once", f.name)
		}
	}
}
