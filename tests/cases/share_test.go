package cases

// M1, M2, M3, M12, M16, M17: memory that programs create and map by themselves, and memory that
// processes share.

import (
	"fmt"
	"testing"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// created is a node with one card on which sizes of created memory are what they seem: the machine's
// granularity is asked for.
func created(t *testing.T) *node.Node {
	t.Helper()
	return node.Start(t, node.Options{Machine: node.Machine("256MiB", "512B")})
}

// booksAgree compares what containers are charged with the card's own books, which count shared memory
// once.
func booksAgree(t *testing.T, n *node.Node, what string, names ...string) {
	t.Helper()
	n.Eventually(func() string {
		status, err := sim.Status(n.SimDir)
		if err != nil {
			return err.Error()
		}
		var used int64
		for _, name := range names {
			one, _ := n.Use(name)
			used += one
		}
		if card := status.GPUs[0].UsedBytes - status.GPUs[0].ContextBytes; card != used {
			return fmt.Sprintf("%s: the card's books say %d bytes, containers use %d", what, card, used)
		}
		return ""
	})
}

// use fails the test unless a container uses so many bytes.
func use(t *testing.T, n *node.Node, what, name string, want int64) {
	t.Helper()
	if used, _ := n.Use(name); used != want {
		t.Errorf("%s: %s uses %d bytes, want %d", what, name, used, want)
	}
}

const errorOutOfMemory = "error 2"

// refused fails the test unless a command is refused for want of memory.
func refused(t *testing.T, p *node.Puppet, format string, arguments ...any) {
	t.Helper()
	if words := p.Do(format, arguments...); fmt.Sprint(words) != "["+errorOutOfMemory+"]" {
		t.Errorf("%s: %v, want %s", fmt.Sprintf(format, arguments...), words, errorOutOfMemory)
	}
}

// M1: charged when it is created, refused at the cap, given back with the last reference and the last
// mapping.
func TestM1CreatedMemory(t *testing.T) {
	n := created(t)
	p := n.Puppet(node.RunOptions{Name: "segments", Memory: "64MiB"})
	p.OK("init")
	unit := p.Number("granularity")
	whole := int64(64*mib) / unit * unit
	one := p.Number("create %d", whole-unit)
	use(t, n, "created", "segments", whole-unit)
	place := p.Number("map %d %d", one, whole-unit)
	p.OK("poke %d 77", place)
	refused(t, p, "create %d", 2*unit)
	two := p.Number("create %d", unit)
	refused(t, p, "create %d", unit)
	use(t, n, "at the cap", "segments", whole)
	booksAgree(t, n, "at the cap", "segments")

	p.OK("unhandle %d", one)
	use(t, n, "released, but mapped", "segments", whole)
	again := p.Number("retain-handle %d", place)
	p.OK("unmap %d", place)
	use(t, n, "unmapped, but retained", "segments", whole)
	place = p.Number("map %d %d", again, whole-unit)
	if got := p.Number("peek %d", place); got != 77 {
		t.Errorf("mapped again it has %d, want 77", got)
	}
	p.OK("unmap %d", place)
	p.OK("unhandle %d", again)
	use(t, n, "released", "segments", unit)
	p.OK("unhandle %d", two)
	use(t, n, "all released", "segments", 0)
	booksAgree(t, n, "all released", "segments")
	p.OK("create %d", whole)
}

// M2: a thread without a context creates memory, on the device that it names.
func TestM2WithoutContext(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "512B") + node.Card("256MiB", "512B")})
	p := n.Puppet(node.RunOptions{Name: "thread", Memory: "64MiB"})
	p.OK("init")
	unit := p.Number("granularity")
	p.OK("thread-create %d 1", 2*unit)
	p.OK("thread-create %d 0", unit)
	gpus := n.Container("thread").GPUs
	if gpus[0].UsedBytes != unit || gpus[1].UsedBytes != 2*unit {
		t.Errorf("charged %d and %d bytes, want %d and %d", gpus[0].UsedBytes, gpus[1].UsedBytes, unit,
			2*unit)
	}
	refused(t, p, "thread-create %d 1", int64(64*mib)/unit*unit)
}

// M3: memory that is created on the host has no cap.
func TestM3HostLocation(t *testing.T) {
	n := created(t)
	p := n.Puppet(node.RunOptions{Name: "host", Memory: "8MiB"})
	p.OK("init")
	unit := p.Number("granularity")
	for _, location := range []int{2, 3} { // host, and a NUMA node of it
		words := p.Do("create %d 0 %d", int64(16*mib)/unit*unit, location)
		if words[0] == "ok" {
			continue
		}
		if bare := n.BarePuppet(); bare.Do("init") != nil {
			if want := bare.Do("create %d 0 %d", int64(16*mib)/unit*unit, location); fmt.Sprint(want) != fmt.Sprint(words) {
				t.Errorf("location %d: %v, the driver alone says %v", location, words, want)
			}
		}
	}
	use(t, n, "on the host", "host", 0)
}

// M12: memory that another process exports is charged once, to the exporter while it or any importer
// lives; of unknown origin, to the importer.
func TestM12ImportedMemory(t *testing.T) {
	n := created(t)
	a := n.Puppet(node.RunOptions{Name: "exporter", Memory: "64MiB"})
	b := n.Puppet(node.RunOptions{Name: "importer", Memory: "64MiB"})
	for _, p := range []*node.Puppet{a, b} {
		p.OK("init")
	}
	unit := a.Number("granularity")
	handle := a.Number("create %d", 8*unit)
	theirs := b.Number("import-fd %d %d", a.PID(), a.Number("fd %d", handle))
	here, there := a.Number("map %d %d", handle, 8*unit), b.Number("map %d %d", theirs, 8*unit)
	a.OK("poke %d 123", here)
	if got := b.Number("peek %d", there); got != 123 {
		t.Errorf("the importer reads %d", got)
	}
	slot := a.Number("alloc %d", 4*mib)
	opened := b.Number("open %s", a.OK("ipc %d", slot)[0])
	check := func(what string, exporter, importer int64) {
		t.Helper()
		use(t, n, what, "exporter", exporter)
		use(t, n, what, "importer", importer)
		booksAgree(t, n, what, "exporter", "importer")
	}
	check("imported", 8*unit+4*mib, 0)
	if shared := n.Container("exporter").GPUs[0].SharedBytes; shared != 8*unit+4*mib {
		t.Errorf("inspect shows %d shared bytes", shared)
	}
	a.Kill()
	n.Eventually(func() string {
		if c := n.Container("exporter"); len(c.Sessions) > 0 {
			return "the exporter's session has not ended"
		}
		return ""
	})
	check("the exporter is dead", 8*unit+4*mib, 0)
	b.OK("close %d", opened)
	b.OK("unmap %d", there)
	check("one is closed, the other has a handle", 8*unit, 0)
	b.OK("unhandle %d", theirs)
	use(t, n, "let go of", "importer", 0)

	stranger := n.BarePuppet()
	stranger.OK("init")
	handle = stranger.Number("create %d", 8*unit)
	theirs = b.Number("import-fd %d %d", stranger.PID(), stranger.Number("fd %d", handle))
	there = b.Number("map %d %d", theirs, 8*unit)
	use(t, n, "of unknown origin", "importer", 8*unit)
	opened = b.Number("open %s", stranger.OK("ipc %d", stranger.Number("alloc %d", 4*mib))[0])
	use(t, n, "opened, of unknown origin", "importer", 8*unit+4*mib)
	refused(t, b, "alloc %d", 60*mib)
	b.OK("close %d", opened)
	b.OK("unmap %d", there)
	b.OK("unhandle %d", theirs)
	use(t, n, "let go of again", "importer", 0)
}

// M12, of pools: what is imported out of one is charged to the process whose pool it is.
func TestM12ImportedPools(t *testing.T) {
	n := created(t)
	a := n.Puppet(node.RunOptions{Name: "exporter", Memory: "64MiB"})
	b := n.Puppet(node.RunOptions{Name: "importer", Memory: "64MiB"})
	stranger := n.BarePuppet()
	for _, p := range []*node.Puppet{a, b, stranger} {
		p.OK("init")
	}
	share := func(from *node.Puppet) (pool, place, theirs, there int64) {
		pool = from.Number("pool")
		place = from.Number("pool-alloc %d %d", pool, 4*mib)
		theirs = b.Number("import-pool %d %d", from.PID(), from.Number("pool-fd %d", pool))
		there = b.Number("import-place %d %s", theirs, from.OK("export-place %d", place)[0])
		from.OK("poke %d 9", place)
		if got := b.Number("peek %d", there); got != 9 {
			t.Errorf("the importer reads %d", got)
		}
		return pool, place, theirs, there
	}
	_, place, theirs, there := share(a)
	use(t, n, "imported", "importer", 0)
	if used, _ := n.Use("exporter"); used < 4*mib {
		t.Errorf("the exporter uses %d bytes", used)
	}
	b.OK("free-place %d", there)
	b.OK("unpool %d", theirs)
	a.OK("free-place %d", place)

	_, place, theirs, there = share(stranger)
	use(t, n, "of unknown origin", "importer", 4*mib)
	b.OK("free-place %d", there)
	use(t, n, "freed", "importer", 0)
	b.OK("unpool %d", theirs)
	stranger.OK("free-place %d", place)
}

// M12, M17, of pools: what importers have of a pool stays charged when its exporter has ended, as all that
// it had reserved, until they have let go of the pool and of what they imported out of it.
func TestM12PoolOutlivesItsExporter(t *testing.T) {
	machine := node.Machine("256MiB", "512B") + "pool_chunk = \"1MiB\"\n"
	n := node.Start(t, node.Options{Machine: machine})
	for _, destroyed := range []bool{false, true} {
		name := fmt.Sprint("destroyed-", destroyed)
		pair := n.Puppets(2, node.RunOptions{Name: name, Memory: "8MiB"})
		a, b := pair[0], pair[1]
		a.OK("init")
		b.OK("init")
		a.OK("alloc %d", mib)
		pool := a.Number("pool")
		place := a.Number("pool-alloc %d %d", pool, 3*mib)
		a.Number("pool-alloc %d %d", pool, 2*mib)
		theirs := b.Number("import-pool %d %d", a.PID(), a.Number("pool-fd %d", pool))
		there := b.Number("import-place %d %s", theirs, a.OK("export-place %d", place)[0])
		use(t, n, "imported", name, 6*mib)
		if destroyed {
			a.OK("unpool %d", pool)
			b.OK("unpool %d", theirs)
		}
		a.Kill()
		becomes(t, n, "its exporter has ended", name, 5*mib)
		if card := books(t, n).GPUs[0].UsedBytes; card < 3*mib || card > 5*mib {
			t.Errorf("the card's books say %d bytes", card)
		}
		refused(t, b, "alloc %d", 4*mib)
		b.OK("free %d", b.Number("alloc %d", 3*mib))
		b.OK("free-place %d", there)
		if !destroyed {
			use(t, n, "the pool is still there", name, 5*mib)
			b.OK("unpool %d", theirs)
		}
		becomes(t, n, "let go of", name, 0)
		booksAgree(t, n, "let go of", name)
		b.Kill()
	}
}

// becomes waits until a container uses so many bytes.
func becomes(t *testing.T, n *node.Node, what, name string, want int64) {
	t.Helper()
	n.Eventually(func() string {
		if used, _ := n.Use(name); used != want {
			return fmt.Sprintf("%s: %s uses %d bytes, want %d", what, name, used, want)
		}
		return ""
	})
}

// M16: a handle, a mapping or an opened pointer that was never seen is passed on, the driver's code
// comes back, and nothing is given back for it.
func TestM16NeverSeen(t *testing.T) {
	n := created(t)
	under, bare := n.Puppet(node.RunOptions{Name: "unseen", Memory: "64MiB"}), n.BarePuppet()
	for _, p := range []*node.Puppet{under, bare} {
		p.OK("init")
		p.OK("alloc %d", mib)
		p.OK("create %d", p.Number("granularity"))
	}
	before, _ := n.Use("unseen")
	for _, command := range []string{
		"free-address 305419896", "close 99", "unmap 99", "unhandle 99",
	} {
		got, want := under.Do("%s", command), bare.Do("%s", command)
		if fmt.Sprint(got) != fmt.Sprint(want) || want[0] == "ok" {
			t.Errorf("%s: %v, the driver alone says %v", command, got, want)
		}
	}
	use(t, n, "nothing is given back", "unseen", before)
	process, _ := books(t, n).GPUs[0].Process(under.PID())
	if process.AllocatedBytes != before {
		t.Errorf("the card's books say %d bytes, charged are %d", process.AllocatedBytes, before)
	}
}

// M17: created, exported, imported in B, released in A, where the charge must not drop, again and
// again, in one container and across two: never more than the cap in all.
func TestM17ReleasedByItsExporter(t *testing.T) {
	for _, containers := range []string{"one", "two"} {
		t.Run(containers, func(t *testing.T) {
			n := created(t)
			var a, b *node.Puppet
			names := []string{"a"}
			if containers == "one" {
				pair := n.Puppets(2, node.RunOptions{Name: "a", Memory: "8MiB"})
				a, b = pair[0], pair[1]
			} else {
				a = n.Puppet(node.RunOptions{Name: "a", Memory: "8MiB"})
				b = n.Puppet(node.RunOptions{Name: "b", Memory: "8MiB"})
				names = append(names, "b")
			}
			for _, p := range []*node.Puppet{a, b} {
				p.OK("init")
			}
			unit := a.Number("granularity")
			bytes := int64(6*mib) / unit * unit
			for i := range 1000 {
				handle := a.Number("create %d", bytes)
				fd := a.Number("fd %d", handle)
				theirs := b.Number("import-fd %d %d", a.PID(), fd)
				a.OK("unhandle %d", handle)
				if i%50 == 0 {
					use(t, n, "released by its exporter", "a", bytes)
					booksAgree(t, n, "released by its exporter", names...)
				}
				refused(t, a, "create %d", bytes)
				b.OK("unhandle %d", theirs)
				a.OK("close-fd %d", fd)
				a.OK("forget")
				b.OK("forget")
			}
			use(t, n, "in the end", "a", 0)
			booksAgree(t, n, "in the end", names...)
		})
	}
}
