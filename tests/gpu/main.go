// gpu checks weir on a machine with a real NVIDIA driver: `make gpu-check`. It starts an agent of its own
// in a temporary directory, runs small programs under caps, and writes one table.
//
// On the card it allocates far less than is free, in one check managed memory, changes no setting, and
// leaves others' processes alone.
//
// For work on the checks themselves there are two environment variables. WEIR_GPU_CHECK_SIMULATED=1 runs
// them on a simulated machine, without what needs NVIDIA's runtime; the table says so. There,
// WEIR_GPU_CHECK_SABOTAGE=library takes the library from the programs, =cap their caps, =share their
// weights, and =swap their swap: the checks of those then have to fail.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"weir/agent/device"
	"weir/tests/e2e/node"
)

// version of weir; the build sets it.
var version = "unknown"

const (
	wholeLimit = 8 * time.Minute
	// endReserve of the whole time is for cleaning up and writing the table.
	endReserve = 15 * time.Second
	// checkLeast: a check that could have less time is left out.
	checkLeast = 5 * time.Second
	// temporaryMost is the longest path of a temporary directory that sockets can lie below.
	temporaryMost = 40
)

// run is all that the checks share.
type run struct {
	node     *node.Node
	card     card
	capBytes int64
	devices  *device.Devices
	gpuUUID  string // NVML's name for the card
	options  options
	// othersDone is closed when only checks are left that ran beside the others.
	othersDone chan struct{}
}

type options struct {
	simulated bool
	sabotage  string
	ends      time.Time
	table     string        // the file
	watch     time.Duration // the least time that the agent is given to find something undeclared
	only      *regexp.Regexp
}

func readOptions() (o options, err error) {
	until := flag.Int64("until", time.Now().Add(wholeLimit).Unix(),
		"when all must be over, in seconds since 1970")
	table := flag.String("table", "", "where the table goes; gpu-check.md in the build folder")
	// The agent looks every 3 s, and reports what it sees twice.
	watch := flag.Duration("watch", 7*time.Second, "for how long a program is watched at least")
	only := flag.String("only", "", "a regular expression: run only the checks whose names match")
	flag.Parse()
	o = options{os.Getenv("WEIR_GPU_CHECK_SIMULATED") != "", os.Getenv("WEIR_GPU_CHECK_SABOTAGE"),
		time.Unix(*until, 0).Add(-endReserve), *table, *watch, nil}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	if o.table == "" && o.simulated {
		o.table = filepath.Join(buildFolder(), "gpu-check-simulated.md")
	} else if o.table == "" {
		o.table = filepath.Join(buildFolder(), "gpu-check.md")
	}
	switch {
	case o.sabotage != "" && !o.simulated:
		return o, fmt.Errorf("WEIR_GPU_CHECK_SABOTAGE is for the simulated machine only")
	case !slices.Contains([]string{"", "library", "cap", "share", "swap"}, o.sabotage):
		return o, fmt.Errorf("WEIR_GPU_CHECK_SABOTAGE is %q, not library, cap, share or swap", o.sabotage)
	}
	return o, nil
}

func main() {
	options, err := readOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		os.Exit(2)
	}
	// So that the driver counts GPUs as NVML does.
	_ = os.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	// The addresses of sockets below it are short, so it must be too.
	if len(os.TempDir()) > temporaryMost {
		_ = os.Setenv("TMPDIR", "/tmp")
	}
	end := newEnding(options.ends)
	whole := newTrial("set-up")
	end.add(whole)
	r := &run{options: options}
	var found machine
	attempt(func() { found = r.setUp(whole) })
	if whole.Failed() {
		fmt.Fprintln(os.Stderr, "gpu-check: the set-up failed:", whole.text)
		end.now(1)
	}
	printHead(os.Stdout, found)
	results := r.all(end)
	if err := writeTable(options.table, found, results); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check: writing the table:", err)
		end.now(1)
	}
	fmt.Printf("\n%d of %d checks failed; the table is in %s\n", failures(results), len(results), options.table)
	end.now(min(failures(results), 1))
}

// setUp starts the agent, looks at the card, and chooses sizes.
func (r *run) setUp(t *trial) machine {
	nodeOptions := node.Options{CountContext: true, RealCard: !r.options.simulated}
	if r.options.sabotage == "library" {
		nodeOptions.Through = []string{"env", "-u", "LD_PRELOAD"}
	}
	// Last of all: a check that is interrupted may still make something below.
	t.Cleanup(func() {
		if r.node != nil {
			_ = os.RemoveAll(r.node.Dir)
		}
	})
	r.node = node.Start(t, nodeOptions)
	r.card = probe(r.node, t)
	var err error
	if r.devices, err = openNVML(r.node, r.options.simulated); err != nil {
		t.Fatalf("opening NVML: %v", err)
	}
	t.Cleanup(func() { _ = r.devices.Close() })
	if r.gpuUUID = nvmlUUID(r.devices, r.card.uuid); r.gpuUUID == "" {
		t.Fatalf("NVML does not list the driver's first GPU, %s", r.card.uuid)
	}
	// What is free with a context of the probe's, and what without.
	idle, err := r.devices.Memory(r.gpuUUID)
	if err != nil {
		t.Fatalf("asking NVML for memory: %v", err)
	}
	r.card = probe(r.node, t)
	r.capBytes = r.card.capFor(t, max(0, idle.FreeBytes-r.card.freeBytes))
	return machine{
		gpu: r.card.name, driver: r.devices.DriverVersion(), cuda: r.card.cuda, weir: version,
		simulated: r.options.simulated, date: time.Now(), capBytes: r.capBytes,
	}
}

// all runs the checks, each within its own time and what is left of the whole: one by one, but for those
// that run beside the others.
func (r *run) all(end *ending) (results []result) {
	r.othersDone = make(chan struct{})
	checks := slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !r.options.only.MatchString(c.name) })
	beside := make(chan result, len(checks))
	count := 0
	for _, check := range checks {
		if check.beside {
			count++
			go func() { beside <- r.one(end, check) }()
		}
	}
	for _, check := range checks {
		if !check.beside {
			row := r.one(end, check)
			printRow(os.Stdout, row)
			results = append(results, row)
		}
	}
	close(r.othersDone)
	for range count {
		row := <-beside
		printRow(os.Stdout, row)
		results = append(results, row)
	}
	return results
}

func (r *run) one(end *ending, check check) result {
	left := time.Until(r.options.ends)
	if left < checkLeast {
		return result{check.name, skipped, "no time was left", 0}
	}
	t := newTrial(check.name)
	end.add(t)
	row := t.within(min(check.limit, left), func(t *trial) { check.run(r, t) })
	if row.outcome == fail {
		fmt.Fprint(os.Stderr, t.log.String())
	}
	return row
}

// ending cleans up, once, however the program ends: by itself, by a signal, or by the watchdog.
type ending struct {
	mu     sync.Mutex
	trials []*trial
	once   sync.Once
}

func newEnding(ends time.Time) *ending {
	e := &ending{}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-signals:
			fmt.Fprintln(os.Stderr, "gpu-check: interrupted")
		case <-time.After(time.Until(ends) + endReserve/2):
			fmt.Fprintln(os.Stderr, "gpu-check: the time is over")
		}
		e.now(1)
	}()
	return e
}

func (e *ending) add(t *trial) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trials = append(e.trials, t)
}

// now does not return.
func (e *ending) now(status int) {
	e.once.Do(func() {
		e.mu.Lock()
		trials := e.trials
		e.mu.Unlock()
		for i := len(trials) - 1; i >= 0; i-- {
			attempt(trials[i].cleanUp)
		}
		os.Exit(status)
	})
	select {}
}
