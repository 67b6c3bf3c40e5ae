// Debian's nvtop shows the simulated machine. The test looks for what it says, not for how it lays
// it out, and skips where nvtop is not installed. nvidia-smi cannot be tried: it begins by asking
// NVML for a table of private functions, by which it knows NVIDIA's own, and the simulated NVML does
// not answer such questions ("Mismatch in versions": versions 470.256, 535.216 and 535.261).
package nvmltest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"weir/tests/sim"
)

// toolsDir is where tests/packages.sh unpacks them.
const toolsDir = "/usr/local/lib/weir-test-tools"

const clientProgram = "../../../build/sim/nvml/client"

// machine is a simulated one that is up.
type machine struct {
	t   *testing.T
	dir string
}

func up(t *testing.T, name, tool string) machine {
	t.Helper()
	for _, file := range []string{library, clientProgram} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%s is not built: run make build", file)
		}
	}
	if _, err := os.Stat(filepath.Join(toolsDir, tool)); err != nil {
		t.Skipf("no %s: %v; tests/packages.sh gets it from Debian, as root", tool, err)
	}
	loaded, err := sim.LoadMachine(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := sim.Up(dir, loaded); err != nil {
		t.Fatal(err)
	}
	return machine{t, dir}
}

func (m machine) env() []string {
	libraries, err := filepath.Abs(filepath.Dir(library))
	if err != nil {
		m.t.Fatal(err)
	}
	return append(os.Environ(), "WEIR_SIM="+m.dir, "LD_LIBRARY_PATH="+libraries, "TERM=xterm",
		"HOME="+m.t.TempDir(), "LC_ALL=C.UTF-8")
}

// client starts a process that holds bytes on a GPU, by its number in the machine, until the test
// ends or end is called.
func (m machine) client(gpu int, bytes int64) (pid int, end func()) {
	m.t.Helper()
	command := exec.Command(clientProgram, fmt.Sprint(gpu), fmt.Sprint(bytes))
	command.Env, command.Stderr = m.env(), os.Stderr
	input, err := command.StdinPipe() // it ends when this is closed
	if err != nil {
		m.t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			input.Close()
			command.Wait()
		}
	}
	m.t.Cleanup(end)
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		m.t.Fatalf("the client said %q: %v", line, err)
	}
	return command.Process.Pid, end
}

// nvtop needs a terminal, which script(1) gives it. It is ended once it has shown what it should.
func TestNvtopShowsTheMachine(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip(err)
	}
	m := up(t, "a30", "nvtop")
	pid, _ := m.client(0, 64<<20)
	command := exec.Command(script, "-qec", filepath.Join(toolsDir, "nvtop"), "/dev/null")
	command.Env = append(m.env(), "COLUMNS=200", "LINES=50")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := command.StdinPipe()
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
	group := command.Process.Pid
	timer := time.AfterFunc(time.Minute, func() { syscall.Kill(-group, syscall.SIGKILL) })
	var seen bytes.Buffer
	wants := []string{"Simulated A30 24GB", fmt.Sprint(pid), "client"}
	for buffer := make([]byte, 4096); len(wants) > 0; {
		n, err := output.Read(buffer)
		seen.Write(buffer[:n])
		wants = slices.DeleteFunc(wants, func(want string) bool {
			return bytes.Contains(seen.Bytes(), []byte(want))
		})
		if err != nil {
			break
		}
	}
	timer.Stop()
	input.Close()
	syscall.Kill(-group, syscall.SIGKILL) // a positive pid: the command was started
	io.Copy(io.Discard, output)
	command.Wait()
	if len(wants) > 0 {
		t.Errorf("nvtop did not show %q but:\n%q", wants, seen.String())
	}
}
