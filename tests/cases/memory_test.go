package cases

// M rows: memory accounting and caps; and what else a container may rely on.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

const patience = 30 * time.Second

// M5: two of 40 MiB each under 64 MiB, at the same moment, again and again: one gets it, never both,
// never none. (The row's 600 MiB of 1 GiB, by the simulated card's scale.)
func TestM5TwoRaceForOnePlace(t *testing.T) {
	n := node.Start(t, node.Options{})
	pair := n.Puppets(2, node.RunOptions{Name: "pair", Memory: "64MiB"})
	for _, p := range pair {
		p.OK("init")
	}
	for try := range 1000 {
		for _, p := range pair {
			p.Tell("alloc %d", 40*mib)
		}
		got := 0
		for _, p := range pair {
			if p.Answer() == 0 {
				got++
			}
		}
		if got != 1 {
			t.Fatalf("try %d: %d of 2 got 40 MiB of 64", try, got)
		}
		for _, p := range pair {
			p.OK("free-all")
		}
	}
}

// M6: A ends, B goes on, C begins: the sum is B's and C's.
func TestM6SumOfTheLiving(t *testing.T) {
	n := node.Start(t, node.Options{})
	trio := n.Puppets(3, node.RunOptions{Name: "trio", Memory: "64MiB"})
	for i, p := range trio[:2] {
		p.OK("init")
		p.OK("alloc %d", int64(20+i)*mib+int64(i)*512)
	}
	trio[0].Kill()
	trio[2].OK("init")
	trio[2].OK("alloc %d", 3*mib)
	n.Eventually(func() string {
		if used, _ := n.Use("trio"); used != 24*mib+512 {
			return fmt.Sprintf("B and C hold %d bytes, inspect says %d", 24*mib+512, used)
		}
		return ""
	})
}

// M7: killed while it allocates, at any instruction; another process never waits for it and finds all
// of its share.
func TestM7KilledWhileItAllocates(t *testing.T) {
	const kills = 40
	n := node.Start(t, node.Options{})
	all := n.Puppets(kills+1, node.RunOptions{Name: "m7", Memory: "64MiB"})
	witness := all[kills]
	witness.OK("init")
	witness.OK("alloc %d", 8*mib)
	for i, victim := range all[:kills] {
		victim.OK("init")
		victim.Tell("churn 1000000 %d", 40*mib)
		time.Sleep(time.Duration(i*i) * 20 * time.Microsecond)
		victim.Kill()
		start := time.Now()
		witness.OK("alloc %d", 56*mib)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the witness waited %s for the dead", took)
		}
		witness.OK("free 1")
	}
	if used, _ := n.Use("m7"); used != 8*mib {
		t.Errorf("%d bytes are used, the witness holds %d", used, 8*mib)
	}
}

// M8: a pitched allocation is charged by the pitch that the driver gives.
func TestM8PitchAsReturned(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "pitch", Memory: "64MiB"})
	p.OK("init")
	var want int64
	for _, width := range []int64{1, 3, 511, 513, 1001} {
		const height = 37
		pitch := p.Numbers("pitch %d %d 4", width, height)[1]
		want += (pitch*height + 511) / 512 * 512
		if used, _ := n.Use("pitch"); used != want {
			t.Errorf("width %d, pitch %d: inspect says %d bytes, want %d", width, pitch, used, want)
		}
	}
	books, err := sim.Status(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	if process, _ := books.GPUs[0].Process(p.PID()); process.AllocatedBytes != want {
		t.Errorf("the card's own books say %d bytes, charged are %d", process.AllocatedBytes, want)
	}
}

// M10: without a cap the reports are the driver's own.
func TestM10NoCapNoChange(t *testing.T) {
	n := node.Start(t, node.Options{})
	under, bare := n.Puppet(node.RunOptions{Name: "open"}), n.BarePuppet()
	for _, p := range []*node.Puppet{under, bare} {
		p.OK("init")
		p.OK("alloc %d", 10*mib)
	}
	for _, question := range []string{"info", "total 0", "count"} {
		got, want := under.OK("%s", question), bare.OK("%s", question)
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, the driver alone says %v", question, got, want)
		}
	}
}

// M11: total is the cap, be it all of the card; free is what an allocation still gets,
// for every process of the container alike.
func TestM11Reports(t *testing.T) {
	for _, machine := range []struct {
		memory, cap string
		total       int64
	}{{"256MiB", "64MiB", 64 * mib}, {"48MiB", "48MiB", 48 * mib}} {
		t.Run(machine.memory, func(t *testing.T) {
			n := node.Start(t, node.Options{Machine: node.Machine(machine.memory, "1MiB")})
			pair := n.Puppets(2, node.RunOptions{Name: "report", Memory: machine.cap})
			for _, p := range pair {
				p.OK("init")
			}
			pair[0].OK("alloc %d", 20*mib)
			pair[1].OK("churn 10 %d", 8*mib) // unused credit is free all the same
			for _, p := range pair {
				if total := p.Number("total 0"); total != machine.total {
					t.Errorf("total memory %d, want %d", total, machine.total)
				}
				info := p.Numbers("info")
				if info[1] != machine.total {
					t.Errorf("cuMemGetInfo: total %d, want %d", info[1], machine.total)
				}
				if code := p.Code("alloc %d", info[0]+512); code != outOfMemory {
					t.Errorf("more than the %d bytes reported free: code %d", info[0], code)
				}
				slot := p.Number("alloc %d", info[0])
				if free := p.Numbers("info")[0]; free != 0 {
					t.Errorf("all is allocated, and %d bytes are reported free", free)
				}
				p.OK("free %d", slot)
			}
		})
	}
}

// M14: a cap lowered below what is in use, live: what runs goes on, new allocations fail, an event and
// ps say so; raised again, they work.
func TestM14CapBelowUse(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "lowered", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 48*mib)
	p.OK("fill 0 3")
	p.OK("churn 3 %d", 16*mib)
	n.SetCap("lowered", "32MiB")
	p.OK("check 0 3")
	if code := p.Code("alloc 512"); code != outOfMemory {
		t.Errorf("above the lowered cap: code %d", code)
	}
	if free := p.Numbers("info")[0]; free != 0 {
		t.Errorf("%d bytes are reported free above the cap", free)
	}
	if table := n.MustWeir("ps"); !strings.Contains(table, "48MiB / 32MiB") {
		t.Errorf("weir ps does not show it:\n%s", table)
	}
	if len(n.EventsOf("caps", "lowered")) == 0 || len(n.EventsOf("denied", "lowered")) == 0 {
		t.Errorf("events do not tell: %+v", n.Events())
	}
	n.SetCap("lowered", "64MiB")
	p.OK("alloc %d", 16*mib)
	p.OK("check 0 3")
}

// What is freed above a lowered cap is not to be had again, by nobody, before the sum is below it.
func TestM14FreedAboveTheCap(t *testing.T) {
	n := node.Start(t, node.Options{})
	two := n.Puppets(2, node.RunOptions{Name: "lowered", Memory: "64MiB"})
	for _, p := range two {
		p.OK("init")
		p.OK("alloc %d", 12*mib)
		p.OK("alloc %d", 16*mib)
	}
	n.SetCap("lowered", "32MiB")
	two[0].OK("free 1") // 40 MiB are left
	for _, p := range two {
		if code := p.Code("alloc 512"); code != outOfMemory {
			t.Errorf("with 40MiB under a cap of 32MiB: code %d", code)
		}
	}
	two[1].OK("free 1") // 24 MiB are left
	for i, code := range []int{0, outOfMemory} {
		if got := two[i].Code("alloc %d", 8*mib); got != code {
			t.Errorf("8MiB more for process %d: code %d, want %d", i, got, code)
		}
	}
}

// M15: the driver itself is out of memory below the cap: its code, and nothing is charged.
func TestM15DriverOutOfMemory(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("64MiB", "1MiB")})
	hog := n.BarePuppet() // takes the card from outside
	hog.OK("init")
	hog.OK("alloc %d", 40*mib)
	p := n.Puppet(node.RunOptions{Name: "m15", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 10*mib)
	for range 20 {
		if code := p.Code("alloc %d", 30*mib); code != outOfMemory {
			t.Fatalf("more than the card has: code %d", code)
		}
	}
	if used, _ := n.Use("m15"); used != 10*mib {
		t.Errorf("%d bytes are used, the program holds %d", used, 10*mib)
	}
	hog.OK("free-all")
	p.OK("alloc %d", 30*mib)
}

// M16: a pointer that nobody gave out.
func TestM16FreeOfAnUnknownPointer(t *testing.T) {
	n := node.Start(t, node.Options{})
	under, bare := n.Puppet(node.RunOptions{Name: "m16", Memory: "64MiB"}), n.BarePuppet()
	for _, p := range []*node.Puppet{under, bare} {
		p.OK("init")
		p.OK("alloc %d", mib)
	}
	for _, pointer := range []string{"0", "1", "4096", "0x7f1234567000", "0xffffffffffffffff"} {
		if got, want := under.Code("free-address %s", pointer), bare.Code("free-address %s", pointer); got != want {
			t.Errorf("free of %s: code %d, the driver alone says %d", pointer, got, want)
		}
	}
	if used, _ := n.Use("m16"); used != mib {
		t.Errorf("%d bytes are used, want %d", used, mib)
	}
}

// C11: nothing is printed, whatever happens, unless it is asked for.
func TestC11NothingIsPrinted(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Run(node.RunOptions{Name: "quiet", Memory: "8MiB"}, node.Build(t, "e2e/puppet"))
	untoward(t, n, func(command string) string {
		p.Send(command)
		return p.Line()
	})
	code, rest := p.Wait(patience)
	if code != 0 || len(rest) != 0 || p.Stderr() != "" {
		t.Errorf("exit %d, more on stdout %q, stderr %q", code, rest, p.Stderr())
	}
}

// untoward has a puppet meet what a library could have to say something about.
func untoward(t *testing.T, n *node.Node, ask func(command string) (answer string)) {
	t.Helper()
	expect := func(command, want string) {
		t.Helper()
		if answer := ask(command); !strings.HasPrefix(answer, want) {
			t.Errorf("%s: %q, want %s", command, answer, want)
		}
	}
	expect("init", "ok")
	expect("alloc 1048576", "ok")
	expect("alloc 99999999", "error 2")
	expect("free 0", "ok")
	expect("free-address 4096", "error")
	n.KillAgent()
	expect("alloc 1048576", "ok") // of what the process has been lent
	n.StartAgent()
	expect("alloc 1048576", "ok")
}

// A cap holds on each GPU by itself.
func TestCapPerGPU(t *testing.T) {
	n := node.Start(t, node.Options{Machine: "a100x4"})
	p := n.Puppet(node.RunOptions{Name: "multi", Memory: "32MiB"})
	for device := range 4 {
		p.OK("init %d", device)
		if got := p.Numbers("hog %d", mib); got[0] != 32 || got[1] != outOfMemory {
			t.Errorf("GPU %d: got %d MiB of 32, then code %d", device, got[0], got[1])
		}
	}
	if used, _ := n.Use("multi"); used != 4*32*mib {
		t.Errorf("%d bytes are used on four GPUs", used)
	}
}
