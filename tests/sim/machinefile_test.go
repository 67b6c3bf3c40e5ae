// Machine files: the ready-made ones, and that each mistake is told in one line that names the
// file, the line and the key.

package sim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestReadyMadeMachines(t *testing.T) {
	want := map[string]struct {
		gpus   int
		memory int64
	}{
		"a30":    {1, 24 << 30},
		"a100x4": {4, 40 << 30},
		"h200":   {1, 141 << 30},
	}
	names := MachineNames()
	if len(names) != len(want) {
		t.Fatalf("ready-made machines: %v", names)
	}
	uuids := map[[16]byte]string{}
	for _, name := range names {
		machine, err := LoadMachine(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(machine.GPUs) != want[name].gpus || machine.GPUs[0].MemoryBytes != want[name].memory {
			t.Errorf("%s: %d GPUs of %d bytes", name, len(machine.GPUs), machine.GPUs[0].MemoryBytes)
		}
		if machine.Name != name || machine.Scale != 64 || machine.CUDA != 12020 {
			t.Errorf("%s: %+v", name, machine)
		}
		for i, gpu := range machine.GPUs {
			if !strings.HasPrefix(gpu.Name, "Simulated ") {
				t.Errorf("%s: GPU %d is called %q", name, i, gpu.Name)
			}
			if gpu.Slice != 1024*time.Microsecond {
				t.Errorf("%s: slice %v", name, gpu.Slice)
			}
			if other, taken := uuids[gpu.UUID]; taken {
				t.Errorf("GPU %d of %s has the UUID of %s", i, name, other)
			}
			uuids[gpu.UUID] = fmt.Sprintf("GPU %d of %s", i, name)
		}
	}
}

func TestSeveralGPUsDiffer(t *testing.T) {
	machine, err := LoadMachine("a100x4")
	if err != nil {
		t.Fatal(err)
	}
	for i, gpu := range machine.GPUs {
		wantPCI := fmt.Sprintf("0000:%02x:00.0", 0x41+i)
		if gpu.PCI.String() != wantPCI || gpu.NUMANode != i/2 {
			t.Errorf("GPU %d: PCI %s, NUMA node %d", i, gpu.PCI, gpu.NUMANode)
		}
	}
}

// Every parameter of a ready-made machine has its source beside it.
func TestReadyMadeMachinesNameTheirSources(t *testing.T) {
	for _, name := range MachineNames() {
		data, err := machineFiles.ReadFile("machines/" + name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			key, value, isKey := strings.Cut(line, "=")
			if !isKey || strings.HasPrefix(line, "#") || strings.HasPrefix(key, "count") {
				continue
			}
			if !strings.Contains(value, "# ") {
				t.Errorf("%s.toml:%d: %shas no source", name, i+1, key)
			}
		}
	}
}

// sample is a valid file; the tests below spoil one line of it.
func sample(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("machines/a30.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// spoil replaces the line of a key; where that is empty it is left out.
func spoil(t *testing.T, text, key, line string) (string, int) {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, old := range lines {
		if strings.HasPrefix(old, key+" ") || old == key {
			lines[i] = line
			return strings.Join(lines, "\n"), i + 1
		}
	}
	t.Fatalf("no line of %s", key)
	return "", 0
}

func TestBadMachineFiles(t *testing.T) {
	tests := []struct {
		key, line string // the line of key becomes line
		wants     []string
	}{
		{"memory", `memory = "-24GiB"`, []string{"memory", `"-24GiB"`, "negative", "want a size"}},
		{"memory", `memory = -24`, []string{"memory", `"-24"`, "negative"}},
		{"memory", `memory = true`, []string{"memory", `"true"`, "want a size"}},
		{"memory", `memory = "0"`, []string{"memory", `"0"`, "want a size"}},
		{"memory", `memory = "24 parsecs"`, []string{"memory", "24 parsecs", "want a size"}},
		{"memory", `memory = ["24GiB"]`, []string{"memory", "want a size"}},
		{"memory", `memroy = "24GiB"`, []string{"memroy", "unknown key", "memory"}},
		{"memory", ``, []string{"memory", "missing", "a size such as"}},
		{"memory", `memory "24GiB"`, []string{"expected '='"}},
		{"memory", `memory = "32767"`, []string{"memory", "less than 512 at scale 1/64"}},
		{"context_memory", `context_memory = "24GiB"`, []string{"context_memory", "leave nothing"}},
		{"slice", `slice = 1024`, []string{"slice", `a time such as "1024us"`}},
		{"slice", `slice = "0us"`, []string{"slice", "too small"}},
		{"slice", `slice = "999ns"`, []string{"slice", "too small"}},
		{"slice", `slice = "1.0000005us"`, []string{"slice", "whole number of nanoseconds"}},
		{"switch_cost", `switch_cost = "-1us"`, []string{"switch_cost", "negative"}},
		{"host_to_device", `host_to_device = "24GiB"`, []string{"host_to_device", "want a rate"}},
		{"host_to_device", `host_to_device = "0B/s"`, []string{"host_to_device", "too small"}},
		{"memory_bandwidth", `memory_bandwidth = "9999TB/s"`, []string{"too large"}},
		{"clock", `clock = "1440"`, []string{"clock", "a frequency such as"}},
		{"queue_depth", `queue_depth = 0`, []string{"queue_depth", "0 is not a number from 1 to 1024"}},
		{"queue_depth", `queue_depth = "8"`, []string{"queue_depth", `"8" is not a number`}},
		{"queue_depth", `queue_depth = 1.5`, []string{"queue_depth", "1.5 is not a number"}},
		{"multiprocessors", `multiprocessors = 99999999999999999999`, []string{"multiprocessors"}},
		{"numa_node", `numa_node = [0, 1]`, []string{"numa_node", "2 nodes for 1 GPUs"}},
		{"numa_node", `numa_node = -2`, []string{"numa_node", "-2 is not a node number"}},
		{"pci", `pci = "3b:00.0"`, []string{"pci", "a PCI address such as"}},
		{"name", `name = "Simulated\nTitan"`, []string{"name", "a card's name"}},
		{"name", `count = 17`, []string{"count", "17 is not a number from 1 to 16"}},
		{"compute_capability", `compute_capability = 8.0`, []string{"a compute capability such as"}},
		{"scale", `scale = "2/64"`, []string{"scale", `a fraction from "1/1" to "1/65536"`}},
		{"scale", `scale = "1/0"`, []string{"scale", "a fraction"}},
		{"scale", `scale = 0.015625`, []string{"scale", "a fraction"}},
		{"scale", `scales = "1/64"`, []string{"scales", "unknown key", "known here: scale, driver,"}},
		{"driver", `driver = "535"`, []string{"driver", "a version such as"}},
		{"cuda", `cuda = 12.2`, []string{"cuda", "a version such as"}},
		{"mig", `mig = "A30"`, []string{"mig", `"A30" is not a model`, "known: A30-24GB, A100-40GB"}},
		{"mig", `mig = "A100-40GB"`, []string{"mig", "profile 7g.40gb", "the model of this card"}},
		{"mig", `mig = 1`, []string{"mig", "1 is not a model"}},
		{"mig", `reserved_memory = "24GiB"`, []string{"reserved_memory", "leave nothing"}},
		{"uvm_page", `uvm_page = "0"`, []string{"uvm_page", "want a size"}},
		{"pool_chunk", `pool_chunk = 2.5`, []string{"pool_chunk", "whole number of bytes"}},
		{"fault_batch", `fault_batch = 0`, []string{"fault_batch", "0 is not a number from 1"}},
		{"fault_batch_latency", `fault_batch_latency = "0us"`, []string{"too small"}},
		{"mig", `concurrent_managed_access = 0`, []string{"concurrent_managed_access", "0 is not true or false"}},
		{"mig", `pcie_path = "0/0"`, []string{"pcie_path", "switches count from 1"}},
		{"mig", `pcie_path = "0/1/2/3/4"`, []string{"pcie_path", "at most 3"}},
		{"mig", `pcie_path = ["0/1", "0/1"]`, []string{"pcie_path", "2 paths for 1 GPUs"}},
		{"mig", `pcie_path = 256`, []string{"pcie_path", "a path such as"}},
		{"cuda", `memory_limits = true`, []string{"memory_limits", "driver 535.309.01 holds none", "from 615 on"}},
		{"cuda", `peer_access = "yes"`, []string{"peer_access", `"yes" is not true or false`}},
		{"cuda", `host_memory = "0"`, []string{"host_memory", "want a size"}},
		{"cuda", `nvlink_bandwidth = "25GiB"`, []string{"nvlink_bandwidth", "want a rate"}},
		{"mig", `[[nvlink]]`, []string{"missing; want two GPUs or more"}},
		{"[[gpu]]", `[gpu]`, []string{"gpu", "want [[gpu]]"}},
		{"[[gpu]]", `[[gpus]]`, []string{"gpus", "unknown key"}},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			text, line := spoil(t, sample(t), test.key, test.line)
			if test.line == "" {
				line = 8 // of its [[gpu]]
			}
			_, err := ParseMachine("dir/bad.toml", []byte(text))
			mistake := (*FileError)(nil)
			if !errors.As(err, &mistake) {
				t.Fatalf("error: %v", err)
			}
			message := err.Error()
			if prefix := fmt.Sprintf("dir/bad.toml:%d: ", line); !strings.HasPrefix(message, prefix) {
				t.Errorf("%q does not begin with %q", message, prefix)
			}
			if strings.Contains(message, "\n") {
				t.Errorf("%q is more than one line", message)
			}
			for _, want := range test.wants {
				if !strings.Contains(message, want) {
					t.Errorf("%q does not say %q", message, want)
				}
			}
		})
	}
}

func TestMissingAndTooManyGPUs(t *testing.T) {
	head, gpu, _ := strings.Cut(sample(t), "[[gpu]]")
	gpu = "[[gpu]]" + gpu
	nine := strings.Replace(gpu, "name ", "count = 9\nname ", 1)
	for want, text := range map[string]string{
		":1: gpu: missing; want one [[gpu]] table":       head,
		":8: gpu: want [[gpu]]":                          head + "gpu = []\n",
		":42: pci: GPU 1 would be at 0000:3b:00.0 like":  head + gpu + "\n" + gpu,
		": count: 18 GPUs in all; a machine has 1 to 16": head + nine + nine,
		": gpu: want [[gpu]]":                            head + "gpu = 3\n",
	} {
		_, err := ParseMachine("bad.toml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestNVLinks(t *testing.T) {
	four := strings.Replace(sample(t), "name ", "count = 4\nname ", 1) + "\n"
	machine, err := ParseMachine("linked.toml", []byte(four+
		"[[nvlink]]\ngpus = [0, 1, 2]\nlinks = 2\n[[nvlink]]\ngpus = [3, 2]\nlinks = 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	links := machine.linksBetween()
	for pair, want := range map[[2]int]int{{0, 1}: 2, {1, 2}: 2, {2, 3}: 3, {3, 2}: 3, {0, 3}: 0, {1, 1}: 0} {
		if got := links[pair[0]][pair[1]]; got != want {
			t.Errorf("%d links between %v, want %d", got, pair, want)
		}
	}
	last := strings.Count(four, "\n") + 2
	for text, want := range map[string]string{
		"[[nvlink]]\ngpus = [0]\nlinks = 2\n":      "gpus: [0] is not two GPUs or more",
		"[[nvlink]]\ngpus = [0, 0]\nlinks = 2\n":   "gpus: [0 0] is not two GPUs or more",
		"[[nvlink]]\ngpus = [0, 4]\nlinks = 2\n":   "gpus: there is no GPU 4; the machine has 4",
		"[[nvlink]]\ngpus = [0, 16]\nlinks = 2\n":  "gpus: [0 16] is not two GPUs or more",
		"[[nvlink]]\ngpus = [0, 1, 2]\nlinks = 10": "links: GPU 0 would have 20 links",
		"[[nvlink]]\ngpus = [0, 1]\nlink = 1":      "link: unknown key; known here: gpus, links",
	} {
		_, err := ParseMachine("bad.toml", []byte(four+text))
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), fmt.Sprintf("bad.toml:%d: ", last)) &&
				!strings.HasPrefix(err.Error(), fmt.Sprintf("bad.toml:%d: ", last+1)) {
			t.Errorf("error %v does not say %q at line %d", err, want, last)
		}
	}
}

func TestFirstMistakeIsReported(t *testing.T) {
	text, line := spoil(t, sample(t), "name", `name = 5`)
	text, _ = spoil(t, text, "slice", `slice = -1`)
	_, err := ParseMachine("bad.toml", []byte(text))
	if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("bad.toml:%d: name", line)) {
		t.Errorf("error: %v", err)
	}
}

func TestLoadMachine(t *testing.T) {
	if _, err := LoadMachine("b300"); !errors.Is(err, ErrUnknownMachine) ||
		!strings.Contains(err.Error(), "a100x4, a30, h200") {
		t.Errorf("error: %v", err)
	}
	file := filepath.Join(t.TempDir(), "mine.toml")
	if _, err := LoadMachine(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error: %v", err)
	}
	if err := os.WriteFile(file, []byte(sample(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	machine, err := LoadMachine(file)
	if err != nil {
		t.Fatal(err)
	}
	if machine.Name != "mine" {
		t.Errorf("the machine is called %s", machine.Name)
	}
	if a30, _ := LoadMachine("a30"); machine.GPUs[0].UUID == a30.GPUs[0].UUID {
		t.Error("its GPU has the UUID of a30's")
	}
}

// No text makes the parser panic, and each refusal is one line.
func TestParseMachineTakesAnything(t *testing.T) {
	text := sample(t)
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		length := rapid.IntRange(0, min(40, len(text)-at)).Draw(t, "length")
		insert := rapid.StringN(0, 20, 40).Draw(t, "insert")
		_, err := ParseMachine("any.toml", []byte(text[:at]+insert+text[at+length:]))
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Fatalf("more than one line: %q", err.Error())
		}
	})
}
