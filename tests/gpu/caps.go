package main

// Plain and pitched memory, reports, routes, and caps that change: with one process.

import (
	"fmt"
	"slices"

	"weir/tests/e2e/node"
)

// plain: all that fits under the cap is given, a granule more is not, and what is given back can be had
// again; the same in small pieces.
func (r *run) plain(t *trial) {
	const name = "plain"
	p := r.puppet(t, name)
	start := r.use(t, name)
	room := r.capBytes - start
	whole := p.Number("alloc %d", room)
	refused(t, p, "alloc %d", granule)
	r.uses(t, name, "at the cap", r.capBytes)
	p.OK("free %d", whole)
	r.uses(t, name, "freed", start)
	piece := room / 64 / granule * granule
	got := p.Numbers("hog %d", piece)
	if got[0] != room/piece || got[1] != outOfMemory {
		t.Errorf("%d pieces of %d bytes, then code %d; %d fit", got[0], piece, got[1], room/piece)
	}
	p.OK("free-all")
	r.uses(t, name, "all pieces freed", start)
	if len(r.node.For(t).EventsOf("denied", name)) == 0 {
		t.Errorf("no event says that something was refused")
	}
	t.figure("%s of %s, then refused by code %d; context and code have the rest", size(room),
		size(r.capBytes), outOfMemory)
}

// reports: the driver's calls and both forms of NVML's agree with the cap and with what is left of it.
func (r *run) reports(t *trial) {
	const name = "reports"
	p := r.puppet(t, name)
	p.OK("alloc %d", r.room(t, name)/4/granule*granule)
	room := r.room(t, name)
	info, total := p.Numbers("info"), p.Number("total 0")
	if info[0] != room || info[1] != r.capBytes || total != r.capBytes {
		t.Errorf("free %d, total %d, cuDeviceTotalMem %d; the cap is %d and %d are left of it", info[0],
			info[1], total, r.capBytes, room)
	}
	index := 0
	for _, gpu := range r.devices.GPUs() {
		if gpu.UUID == r.gpuUUID && gpu.MIG != nil {
			t.skip("the driver's calls agree with the cap; the client asks NVML for cards, this is a MIG device")
		}
		if gpu.UUID == r.gpuUUID {
			index = gpu.Index
		}
	}
	v := p.Numbers("nvml %d", index)
	for i, form := range [][]int64{v[0:3], {v[3], v[4], v[5]}} {
		if want := []int64{r.capBytes, room, r.capBytes - room}; !slices.Equal(form, want) {
			t.Errorf("NVML's form %d: total, free and used are %d, not %d", i+1, form, want)
		}
	}
	// Where NVML tells other pids than this process sees, as in a container, there is no list to compare.
	list := p.Numbers("nvml-list %d 3 200", index)
	if seen, err := r.devices.Processes(r.gpuUUID); err != nil || seen[p.PID()] == 0 {
		t.Logf("NVML does not list pid %d: %v", p.PID(), err)
	} else if list[0] != 0 || !slices.Equal(list[2:], []int64{int64(p.PID())}) {
		t.Errorf("NVML's processes: %d, not only %d", list, p.PID())
	}
	t.figure("total %s by five calls, free agrees", size(total))
}

// pitched: charged by the pitch that the driver returns.
func (r *run) pitched(t *trial) {
	const name, width = "pitched", 1001
	p := r.puppet(t, name)
	start := r.use(t, name)
	height := (r.capBytes - start) / 4096
	got := p.Numbers("pitch %d %d 4", width, height)
	bytes := (got[1]*height + granule - 1) / granule * granule
	r.uses(t, name, fmt.Sprintf("%d rows of pitch %d", height, got[1]), start+bytes)
	refused(t, p, "pitch %d %d 4", width, r.room(t, name)/got[1]+1)
	p.OK("free %d", got[0])
	r.uses(t, name, "freed", start)
	t.figure("rows of %d bytes have a pitch of %d", width, got[1])
}

// routes: by whatever way a program finds the driver's functions, the cap holds.
func (r *run) routes(t *trial) {
	const name = "routes"
	p := r.puppet(t, name)
	start := r.use(t, name)
	routes := []string{
		"via link", "via default", "via local", "via deepbind", "via path " + r.card.driverFile,
		"via procaddress 11030", "via procaddress 12000", "self 11030", "self 12000",
	}
	for _, route := range routes {
		p.OK("%s", route)
		if code := p.Code("alloc %d", r.room(t, name)+granule); code != outOfMemory {
			t.Errorf("%s: past the cap: code %d, not %d", route, code, outOfMemory)
			continue
		}
		slot := p.Number("alloc %d", mib)
		r.uses(t, name, route, start+mib)
		p.OK("free %d", slot)
	}
	// What the library does not know, it leaves to the driver.
	bare := r.node.For(t).BarePuppet()
	bare.OK("init")
	const unknown = "look weirNoSuchFunction 12000 0"
	for _, question := range []string{"table", unknown, unknown + " null"} {
		if own, drivers := p.Do("%s", question), bare.Do("%s", question); !slices.Equal(own, drivers) {
			t.Errorf("%s: %q, the driver alone says %q", question, own, drivers)
		}
	}
	t.figure("%d routes", len(routes))
}

// liveCap: a cap is raised, and what was refused fits; it is lowered below what is in use, and the program
// keeps that, data included, but gets nothing more.
func (r *run) liveCap(t *trial) {
	const name = "live"
	n := r.node.For(t)
	low := r.capBytes / 2 / mib * mib
	p := n.Puppet(r.cappedAt(name, low))
	p.OK("init")
	data := p.Number("alloc %d", mib)
	p.OK("fill %d 7", data)
	p.OK("alloc %d", low-r.use(t, name))
	refused(t, p, "alloc %d", granule)
	n.SetCap(name, fmt.Sprintf("%dMiB", r.capBytes/mib))
	more := p.Number("alloc %d", r.room(t, name))
	refused(t, p, "alloc %d", granule)
	n.SetCap(name, fmt.Sprintf("%dMiB", low/mib))
	refused(t, p, "alloc %d", granule)
	p.OK("check %d 7", data)
	p.OK("free %d", more)
	refused(t, p, "alloc %d", granule)
	t.figure("%s, then %s, then %s", size(low), size(r.capBytes), size(low))
}

// acrobat starts one process that knows every kind of memory, under the cap, with a context.
func (r *run) acrobat(t *trial, name string) *node.Puppet {
	p := r.node.For(t).Acrobat(r.capped(name))
	p.OK("init")
	return p
}
