// GPUs through the simulated NVML: each test has a machine of its own.

package device

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/tests/sim"
)

const (
	library       = "../../build/sim/libnvidia-ml.so.1"
	clientProgram = "../../build/sim/nvml/client"
	// readerMode makes the test binary one of many readers (TestManyReaders).
	readerMode = "WEIR_TEST_READER"
)

func TestMain(m *testing.M) {
	if want := os.Getenv(readerMode); want != "" {
		if err := read(want); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// simulate makes a machine for this test and returns its directory.
func simulate(t *testing.T, name string) string {
	t.Helper()
	for _, file := range []string{library, clientProgram} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%s is not built: run make build", file)
		}
	}
	machine, err := sim.LoadMachine(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := sim.Up(dir, machine); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_SIM", dir)
	return dir
}

func openSimulated(t *testing.T) *Devices {
	t.Helper()
	devices, err := Open(library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := devices.Close(); err != nil {
			t.Error(err)
		}
	})
	return devices
}

// startClient starts a process that holds bytes on a simulated GPU, until kill.
func startClient(t *testing.T, gpu int, bytes int64) (pid int, kill func()) {
	t.Helper()
	return startProgram(t, clientProgram, gpu, bytes)
}

// startProgram is startClient for a copy of the program under another name; one more argument is for how many ns it has
// the GPU work at once.
func startProgram(t *testing.T, program string, gpu int, bytes int64, more ...string) (pid int, kill func()) {
	t.Helper()
	command := exec.Command(program, append([]string{fmt.Sprint(gpu), fmt.Sprint(bytes)}, more...)...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe() // closed with this process, so the client never outlives it
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatalf("the client said %q: %v", line, err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			command.Process.Kill()
			io.Copy(io.Discard, output)
			command.Wait()
			input.Close()
		})
	}
	t.Cleanup(kill)
	return command.Process.Pid, kill
}

func checkEmpty(t *testing.T, devices *Devices, err error) {
	t.Helper()
	if !errors.Is(err, ErrNoNVML) {
		t.Fatalf("open: %v", err)
	}
	if devices == nil || len(devices.GPUs()) != 0 || devices.Simulated() {
		t.Fatalf("devices: %+v", devices)
	}
	if _, err := devices.Processes("GPU-0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("processes: %v", err)
	}
	if err := devices.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestNoLibrary(t *testing.T) {
	devices, err := Open(filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	checkEmpty(t, devices, err)
}

func TestNoDriver(t *testing.T) {
	simulate(t, "a30")
	t.Setenv("WEIR_SIM", t.TempDir())
	devices, err := Open(library)
	checkEmpty(t, devices, err)
}

func TestSimulatedGPUs(t *testing.T) {
	dir := simulate(t, "a100x4")
	devices := openSimulated(t)
	books, err := sim.Status(dir)
	if err != nil {
		t.Fatal(err)
	}
	if devices.DriverVersion() != books.Driver || !devices.Simulated() {
		t.Errorf("driver %q, simulated %v", devices.DriverVersion(), devices.Simulated())
	}
	gpus := devices.GPUs()
	if len(gpus) != len(books.GPUs) {
		t.Fatalf("%d GPUs, want %d", len(gpus), len(books.GPUs))
	}
	for i, want := range books.GPUs {
		got := gpus[i]
		if got.Index != i || got.UUID != want.UUID || got.Name != want.Name || !got.Simulated ||
			got.MemoryBytes != want.MemoryBytes {
			t.Errorf("GPU %d: %+v, want %+v", i, got, want)
		}
		if wantPCI := "0000" + strings.ToUpper(want.PCI); got.PCI != wantPCI {
			t.Errorf("GPU %d is at %s, want %s", i, got.PCI, wantPCI)
		}
		if uuid, err := ParseUUID(want.UUID); err != nil || uuid != got.UUIDBytes {
			t.Errorf("GPU %d: UUID bytes %x: %v", i, got.UUIDBytes, err)
		}
	}
}

func TestMemoryAndProcesses(t *testing.T) {
	simulate(t, "a100x4")
	devices := openSimulated(t)
	const context = (416 << 20) / 64
	first, killFirst := startClient(t, 1, 8<<20)
	second, _ := startClient(t, 1, 4<<20)
	check := func(index int, want map[int]int64) {
		t.Helper()
		gpu := devices.GPUs()[index]
		got, err := devices.Processes(gpu.UUID)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("processes of GPU %d: %v, want %v (%v)", index, got, want, err)
		}
		var used int64
		for _, bytes := range want {
			used += bytes
		}
		memory, err := devices.Memory(gpu.UUID)
		if want := (Memory{gpu.MemoryBytes, used, gpu.MemoryBytes - used}); err != nil || memory != want {
			t.Errorf("memory of GPU %d: %+v, want %+v (%v)", index, memory, want, err)
		}
	}
	check(0, map[int]int64{})
	check(1, map[int]int64{first: 8<<20 + context, second: 4<<20 + context})
	killFirst()
	check(1, map[int]int64{second: 4<<20 + context})
	absent := "GPU-00000000-0000-0000-0000-000000000000"
	if _, err := devices.Processes(absent); !errors.Is(err, ErrNotFound) {
		t.Errorf("processes of a GPU that is not there: %v", err)
	}
}

func TestClosed(t *testing.T) {
	simulate(t, "a30")
	devices := openSimulated(t)
	uuid := devices.GPUs()[0].UUID
	if err := devices.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := devices.Processes(uuid); !errors.Is(err, ErrClosed) {
		t.Errorf("processes: %v", err)
	}
	if _, err := devices.Memory(uuid); !errors.Is(err, ErrClosed) {
		t.Errorf("memory: %v", err)
	}
	if len(devices.GPUs()) != 1 {
		t.Error("the list of GPUs is gone")
	}
}

// Many processes may read at once, each with several goroutines, while the agent does too.
func TestManyReaders(t *testing.T) {
	simulate(t, "a30")
	devices := openSimulated(t)
	pid, _ := startClient(t, 0, 4<<20)
	const readers = 8
	commands := make([]*exec.Cmd, readers)
	for i := range commands {
		commands[i] = exec.Command(os.Args[0])
		commands[i].Env = append(os.Environ(), fmt.Sprintf("%s=%d", readerMode, pid))
		commands[i].Stderr = os.Stderr
		if err := commands[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := readList(devices, fmt.Sprint(pid)); err != nil {
		t.Error(err)
	}
	for i, command := range commands {
		if err := command.Wait(); err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
	}
}

// read is one reader: it opens and closes NVML and reads from several goroutines at once.
func read(want string) error {
	for range 5 {
		devices, err := Open(library)
		if err != nil {
			return err
		}
		results := make(chan error)
		for range 4 {
			go func() { results <- readList(devices, want) }()
		}
		for range 4 {
			err = errors.Join(err, <-results)
		}
		if err = errors.Join(err, devices.Close()); err != nil {
			return err
		}
	}
	return nil
}

func readList(devices *Devices, want string) error {
	for range 50 {
		held, err := devices.Processes(devices.GPUs()[0].UUID)
		if err != nil {
			return err
		}
		if pid, err := strconv.Atoi(want); err != nil || len(held) != 1 || held[pid] == 0 {
			return fmt.Errorf("processes: %v, want only %s", held, want)
		}
	}
	return nil
}

func TestParseUUID(t *testing.T) {
	want := [16]byte{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	for _, text := range []string{
		"GPU-abcdef01-0203-0405-0607-08090a0b0c0d", "MIG-ABCDEF01-0203-0405-0607-08090A0B0C0D",
	} {
		if got, err := ParseUUID(text); err != nil || got != want {
			t.Errorf("%s: %x, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "GPU-", "abcdef01-0203-0405-0607-08090a0b0c0d", "GPU-abcdef01-0203-0405-0607-08090a0b0c0",
		"GPU-abcdef01-0203-0405-0607-08090a0b0c0x", "GPU-abcdef0102030405060708090a0b0c0d",
		"GPU-abcdef0-10203-0405-0607-08090a0b0c0d",
	} {
		if got, err := ParseUUID(text); err == nil {
			t.Errorf("%q: %x", text, got)
		}
	}
}
