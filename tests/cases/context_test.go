package cases

// M13: what contexts, code and limits take counts, and is shown apart.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/agent/control"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// contextBytes is what a context takes on the machines of these tests.
const contextBytes = mib

// counting starts a node whose contexts count, with one card of a size.
func counting(t *testing.T, memory, config string) *node.Node {
	t.Helper()
	return node.Start(t, node.Options{
		Machine: node.Machine(memory, "1MiB"), CountContext: true, Config: config,
	})
}

// onCard is what the simulated card's own books say that a process has, its contexts included.
func onCard(t *testing.T, n *node.Node, gpu, pid int) int64 {
	t.Helper()
	books, err := sim.Status(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := books.GPUs[gpu].Process(pid)
	return p.AllocatedBytes + p.ContextBytes
}

// agree fails the test unless inspect and the card's own books say the same of a container of one
// process.
func agree(t *testing.T, n *node.Node, name string, p *node.Puppet, what string) control.GPUUse {
	t.Helper()
	use := n.Container(name).GPUs[0]
	if card := onCard(t, n, 0, p.PID()); use.UsedBytes != card {
		t.Errorf("%s: inspect says %d bytes, the card's own books %d", what, use.UsedBytes, card)
	}
	return use
}

// Forty contexts of one process, and of forty: each is charged, and the cap holds for all of them
// together.
func TestM13Contexts(t *testing.T) {
	n := counting(t, "256MiB", "")
	p := n.Puppet(node.RunOptions{Name: "one", Memory: "21MiB"})
	p.OK("init")
	for i := range 20 {
		p.OK("context 0")
		if use := agree(t, n, "one", p, fmt.Sprint(i+2, " contexts")); use.ContextBytes != int64(i+2)*contextBytes {
			t.Errorf("%d bytes of contexts are shown", use.ContextBytes)
		}
	}
	if code := p.Code("context 0"); code != outOfMemory {
		t.Errorf("a context past the cap: code %d", code)
	}
	if code := p.Code("alloc 512"); code != outOfMemory {
		t.Errorf("the contexts leave nothing, and memory is given: code %d", code)
	}
	p.OK("destroy 3")
	p.OK("alloc %d", contextBytes)
	agree(t, n, "one", p, "one for the other")

	many := n.Puppets(40, node.RunOptions{Name: "many", Memory: "36MiB"})
	got := 0
	for _, p := range many {
		switch code := p.Code("init"); code {
		case 0:
			got++
		case outOfMemory:
		default:
			t.Fatalf("init: code %d", code)
		}
	}
	if use := n.Container("many").GPUs[0]; got != 36 || use.UsedBytes != 36*contextBytes {
		t.Errorf("%d processes of 36 have a context; %d bytes are used", got, use.UsedBytes)
	}
}

// The primary context is charged once however often it is retained, and no more when it has ended.
func TestM13PrimaryContext(t *testing.T) {
	n := counting(t, "64MiB", "")
	p := n.Puppet(node.RunOptions{Name: "primary", Memory: "8MiB"})
	p.OK("init")
	used := func(want int64, what string) {
		t.Helper()
		if use := agree(t, n, "primary", p, what); use.UsedBytes != want {
			t.Errorf("%s: %d bytes are used, want %d", what, use.UsedBytes, want)
		}
	}
	used(contextBytes, "retained")
	p.OK("retain 0")
	used(contextBytes, "retained twice")
	p.OK("alloc %d", mib)
	p.OK("release 0")
	used(contextBytes+mib, "released once")
	p.OK("release 0")
	used(0, "released for good")
	p.OK("init")
	p.OK("alloc %d", mib)
	p.OK("reset 0")
	used(onCard(t, n, 0, p.PID()), "reset")
}

// A cap that is smaller than one context is told to be, whether or not its size was known before.
func TestM13CapSmallerThanOneContext(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "16MiB"), CountContext: true})
	for _, name := range []string{"first", "second"} {
		p := n.Puppet(node.RunOptions{Name: name, Memory: "8MiB"})
		if code := p.Code("init"); code != outOfMemory {
			t.Errorf("%s: a context of 16 MiB under a cap of 8: code %d", name, code)
		}
		denied := n.EventsOf("denied", name)
		if len(denied) != 1 || !strings.Contains(denied[0].Message, "smaller than one context") ||
			!strings.Contains(denied[0].Message, "16MiB") || !strings.Contains(denied[0].Message, "8MiB") {
			t.Errorf("%s: no event says that the cap is smaller than one context: %+v", name, denied)
		}
		if used, charged := n.Use(name); used != 0 || charged != 0 {
			t.Errorf("%s: %d bytes are used, %d charged", name, used, charged)
		}
		if card := onCard(t, n, 0, p.PID()); card != 0 {
			t.Errorf("%s: %d bytes are left on the card", name, card)
		}
		n.SetCap(name, "17MiB")
		p.OK("init")
	}
	if measured := n.EventsOf("measured", "first"); len(measured) != 1 {
		t.Errorf("%d events say that a context was measured: %+v", len(measured), n.Events())
	}
}

// What a context takes is known from then on, also to the next agent.
func TestM13SizeIsKept(t *testing.T) {
	n := counting(t, "64MiB", "")
	first := n.Puppet(node.RunOptions{Name: "first", Memory: "8MiB"})
	first.OK("init")
	n.KillAgent()
	n.StartAgent()
	second := n.Puppet(node.RunOptions{Name: "second", Memory: "8MiB"})
	second.OK("init")
	for _, one := range []struct {
		name string
		p    *node.Puppet
	}{{"first", first}, {"second", second}} {
		use := agree(t, n, one.name, one.p, one.name)
		if use.UsedBytes != contextBytes || use.ContextBytes != contextBytes {
			t.Errorf("%s: %d bytes are used, %d of them for contexts", one.name, use.UsedBytes, use.ContextBytes)
		}
	}
	if measured := n.EventsOf("measured", "second"); len(measured) != 0 {
		t.Errorf("it was measured again: %+v", measured)
	}
}

// With count_context = false they are shown and not charged.
func TestM13NotCounted(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("64MiB", "1MiB")})
	p := n.Puppet(node.RunOptions{Name: "free", Memory: "1MiB"})
	p.OK("init")
	p.OK("context 0")
	p.OK("limit 2 %d", 12*mib)
	p.OK("alloc %d", mib)
	use := n.Container("free").GPUs[0]
	if use.UsedBytes != mib || use.CodeBytes != 4*mib {
		t.Errorf("%d bytes are used; %d of code and limits are shown", use.UsedBytes, use.CodeBytes)
	}
	if table := n.MustWeir("ps", "-o", "wide"); !strings.Contains(table, "CONTEXTS") {
		t.Errorf("weir ps -o wide:\n%s", table)
	}
}

// ptx writes a file of PTX text with a variable of so many bytes.
func ptx(t *testing.T, n *node.Node, name string, bytes int64) string {
	t.Helper()
	path := filepath.Join(n.Dir, name)
	text := fmt.Sprintf(".version 7.0\n.target sm_70\n.address_size 64\n"+
		".visible .global .align 16 .b8 big[%d];\n.visible .const .u32 small[3] = {1, 2, 3};\n"+
		".visible .entry empty() { ret; }\n", bytes)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Code and its variables count. Arrays too large for the cap are refused before the driver is asked,
// which would take the card's memory first.
func TestM13Code(t *testing.T) {
	n := counting(t, "256MiB", "")
	p := n.Puppet(node.RunOptions{Name: "code", Memory: "64MiB"})
	p.OK("init")
	small := ptx(t, n, "small.ptx", 10*mib)
	for _, way := range []string{"file", "data"} {
		module := p.Number("load %s %s", way, small)
		use := agree(t, n, "code", p, way)
		if want := 10*mib + 2*512; use.CodeBytes != want || use.UsedBytes != contextBytes+want {
			t.Errorf("load %s: %d bytes of code, %d used", way, use.CodeBytes, use.UsedBytes)
		}
		p.OK("unload %d", module)
		if use := agree(t, n, "code", p, way+" unloaded"); use.CodeBytes != 0 {
			t.Errorf("unloaded: %d bytes of code are left", use.CodeBytes)
		}
	}
	for name, bytes := range map[string]int64{"card": 128 * mib, "gigabytes": 8 << 30} {
		if code := p.Code("load data %s", ptx(t, n, name, bytes)); code != outOfMemory {
			t.Errorf("a variable of %d bytes: code %d", bytes, code)
		}
		if card := onCard(t, n, 0, p.PID()); card != contextBytes {
			t.Errorf("after the refusal the process has %d bytes of the card", card)
		}
	}
	denied := n.EventsOf("denied", "code")
	if len(denied) != 2 || !strings.Contains(denied[0].Message, "code and its variables") {
		t.Errorf("events: %+v", denied)
	}
	// What is no code at all gets the driver's own answer, and is not charged.
	rubbish := filepath.Join(n.Dir, "rubbish")
	if err := os.WriteFile(rubbish, []byte("nothing of the kind"), 0o644); err != nil {
		t.Fatal(err)
	}
	bare := n.BarePuppet()
	bare.OK("init")
	for _, load := range []string{"load data " + rubbish, "load file " + rubbish, "load file /nonexistent"} {
		if got, want := p.Code("%s", load), bare.Code("%s", load); got != want || got == 0 {
			t.Errorf("%s: code %d, the driver alone %d", load, got, want)
		}
	}
	agree(t, n, "code", p, "after rubbish")
	// The end of a context is that of its modules.
	p.OK("load data %s", small)
	p.OK("release 0")
	if used, _ := n.Use("code"); used != 0 {
		t.Errorf("the context has ended, and %d bytes are used", used)
	}
}

// A library counts in every context.
func TestM13Libraries(t *testing.T) {
	n := counting(t, "256MiB", "")
	p := n.Puppet(node.RunOptions{
		Name: "library", Memory: "32MiB", Env: []string{"CUDA_MODULE_LOADING=EAGER"},
	})
	p.OK("init")
	p.OK("context 0")
	library := p.Number("library %s", ptx(t, n, "library.ptx", 4*mib))
	each := 4*mib + 2*512
	if use := agree(t, n, "library", p, "in two contexts"); use.CodeBytes != 2*each {
		t.Errorf("%d bytes of code in two contexts, want %d", use.CodeBytes, 2*each)
	}
	p.OK("context 0")
	if use := agree(t, n, "library", p, "in a third context"); use.CodeBytes != 3*each {
		t.Errorf("%d bytes of code in three contexts, want %d", use.CodeBytes, 3*each)
	}
	if code := p.Code("library %s", ptx(t, n, "larger.ptx", 8*mib)); code != outOfMemory {
		t.Errorf("three times 8 MiB where 17 are left: code %d", code)
	}
	agree(t, n, "library", p, "after a refusal")
	p.OK("unload-library %d", library)
	if use := agree(t, n, "library", p, "unloaded"); use.CodeBytes != 0 || use.UsedBytes != 3*contextBytes {
		t.Errorf("unloaded: %d bytes of code, %d used", use.CodeBytes, use.UsedBytes)
	}
}

// Heap, printf buffer and stack beyond the defaults count, and come back.
func TestM13Limits(t *testing.T) {
	n := counting(t, "512MiB", "")
	p := n.Puppet(node.RunOptions{Name: "limits", Memory: "256MiB"})
	p.OK("init")
	const threads = 56 * 2048 // of the machine's multiprocessors
	const stack, buffer, heap = 0, 1, 2
	for _, step := range []struct {
		limit int
		value int64
		total int64 // of all limits, from then on
	}{
		{heap, 32 * mib, 24 * mib},
		{buffer, 2 * mib, 25 * mib},
		{stack, 2048, 25*mib + 1024*threads},
		{heap, 8 * mib, mib + 1024*threads},
		{stack, 512, mib},
		{buffer, 1000, 0},
		{heap, 1, 0},
	} {
		p.OK("limit %d %d", step.limit, step.value)
		if use := agree(t, n, "limits", p, fmt.Sprintf("limit %d", step.limit)); use.CodeBytes != step.total {
			t.Errorf("limit %d of %d: %d bytes are charged, want %d", step.limit, step.value, use.CodeBytes, step.total)
		}
	}
	for limit, value := range map[int]int64{heap: 300 * mib, buffer: 1 << 40, stack: 4096} {
		if code := p.Code("limit %d %d", limit, value); code != outOfMemory {
			t.Errorf("limit %d of %d: code %d", limit, value, code)
		}
		agree(t, n, "limits", p, "after a refusal")
	}
	if got := len(n.EventsOf("denied", "limits")); got != 3 {
		t.Errorf("%d events tell of three refusals", got)
	}
	p.OK("limit %d %d", heap, 32*mib)
	p.OK("release 0")
	if used, _ := n.Use("limits"); used != 0 {
		t.Errorf("the context has ended, and %d bytes are used", used)
	}
}

// What is in a pipe can be read only once: the library reads it, and the driver gets what was read.
func TestM13CodeFromPipe(t *testing.T) {
	n := counting(t, "256MiB", "")
	p := n.Puppet(node.RunOptions{Name: "code", Memory: "64MiB"})
	p.OK("init")
	pipe := filepath.Join(n.Dir, "pipe.ptx")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bytes int64
		code  int
	}{{10 * mib, 0}, {100 * mib, outOfMemory}} {
		text, err := os.ReadFile(ptx(t, n, "image.ptx", c.bytes))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, strings.Repeat("// more than a pipe holds\n", 10000)...)
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(pipe, text, 0o600) }()
		if code := p.Code("load file %s", pipe); code != c.code {
			t.Errorf("variables of %d bytes: code %d", c.bytes, code)
		}
		if err := <-written; err != nil {
			t.Errorf("the writer: %v", err)
		}
		agree(t, n, "code", p, "after the pipe")
	}
	if used, _ := n.Use("code"); used < contextBytes+10*mib {
		t.Errorf("%d bytes are used", used)
	}
	if fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID())); err != nil || slices.ContainsFunc(fds,
		func(fd string) bool { to, _ := os.Readlink(fd); return strings.Contains(to, "weir-image") }) {
		t.Errorf("the file of memory is still open: %v", err)
	}
}

// What contexts begin with is learned from what the driver says, not from its saying nothing: a limit
// whose value cannot be read is not changed, and counts no more later.
func TestM13LimitsUnread(t *testing.T) {
	n := counting(t, "512MiB", "")
	p := n.Puppet(node.RunOptions{Name: "limits", Memory: "256MiB"})
	p.OK("init")
	const heap, illegal = 2, 700
	step := func(value, want int64) {
		t.Helper()
		p.OK("limit %d %d", heap, value)
		if use := agree(t, n, "limits", p, "limit"); use.CodeBytes != want {
			t.Errorf("heap of %d: %d bytes are charged, want %d", value, use.CodeBytes, want)
		}
	}
	for nth := range 4 { // of the calls that read the three limits, and the first after the change
		n.MustWeir("sim", "fault", fmt.Sprintf("cuCtxGetLimit:%d=%d", nth+1, illegal), "--dir", n.SimDir)
		if code := p.Code("limit %d %d", heap, 32*mib); (code != 0) != (nth < 3) || code != 0 && code != illegal {
			t.Errorf("limit with read %d failing: code %d", nth+1, code)
		}
		if used, _ := n.Use("limits"); nth < 3 && used != contextBytes {
			t.Errorf("%d bytes are used where no limit was changed", used)
		}
	}
	agree(t, n, "limits", p, "not read after the change")
	step(16*mib, 8*mib)
	step(mib, 0)
}

// All that, killed at any moment, leaves nothing behind.
func TestM13Killed(t *testing.T) {
	n := counting(t, "256MiB", "")
	path := ptx(t, n, "some.ptx", mib)
	all := n.Puppets(20, node.RunOptions{Name: "killed", Memory: "64MiB"})
	for i, p := range all {
		p.OK("init")
		p.Tell("context 0")
		p.Tell("load data %s", path)
		p.Tell("limit 2 %d", 9*mib)
		if i%2 == 0 {
			p.AnswerNumbers()
		}
		p.Kill()
	}
	n.Eventually(func() string {
		if used, charged := n.Use("killed"); used != 0 || charged != 0 {
			return fmt.Sprintf("%d bytes are used, %d charged", used, charged)
		}
		return ""
	})
	if slices.ContainsFunc(n.Events(), func(e control.Event) bool { return e.Type == "undeclared" }) {
		t.Errorf("something is called undeclared: %+v", n.Events())
	}
}
