package sessiontest

// A tenant process: what it does when it is told.

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// Main turns the process into a tenant and never returns, if Start has started it so; otherwise it
// does nothing. The tenant answers each line of its input with one line, "ok …" or "error …":
//
//	hello SOCKET [PROGRAM]   make the session
//	again                    drop the connection and make it anew
//	alloc GPU BYTES          as Tenant.Alloc
//	free GPU BYTES           as Tenant.Free
//	held GPU, credit GPU     what is held; what unused credit there is
//	query GPU                free, cap and used
//	shown GPU                cap, charged and holders of the control page
//	measure GPU CONTEXTS     what one context takes
//	context GPU              what the control page says of it: bytes, and whether they count
//	display GPU CONTEXTS CODE  write what contexts and their code take, in bytes
//	note CODE A B            send a NOTE
//	export GPU BYTES KEY     as Tenant.Export; KEY is a number
//	import KEY, drop KEY, forget KEY
//	movable GPU BYTES ID, freed GPU ID, lose ID, grow ID BYTES, away ID BYTES  movable memory, as Tenant.AllocMovable and so on
//	moves GPU RESULT         answer all moves that have come so (0: do not), as Tenant.AnswerMoves
//	moved GPU NUMBER         say that this move is done, whether or not it was told of it
//	use GPU [ID]             as Tenant.Use
//	swap GPU                 swap and movable memory of the control page, and whether reports show the two together
//	forge GPU VALUE          write VALUE as the unused credit
//	want|drained|progress|idle GPU LEASE WAITING  say so of GPU time
//	lease GPU, window GPU    the words of GPU time in the control page
//	work GPU ACTIVE DONE     write that so many operations of 1 us are done, and whether more are submitted
//	looks                    how many LOOKs have come, and the GPU and lease of the latest
//	hold                     start a child that keeps the connection open; its pid
//	closefrom                close every descriptor but the standard ones
//	exec [tenant]            become another program: cat, or a new tenant
//	churn …                  see Churn
//	exit                     end
func Main() {
	if os.Getenv(roleVariable) == "" {
		return
	}
	os.Unsetenv(roleVariable)
	fmt.Println("pid", os.Getpid())
	p := &program{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		answer, err := p.do(words[0], words[1:])
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", answer)
		}
	}
	os.Exit(0)
}

type program struct{ tenant *Tenant }

func (p *program) do(command string, args []string) (answer string, err error) {
	switch command {
	case "hello":
		if len(args) == 0 {
			return "", errors.New("hello needs a socket")
		}
		name := append(args, "tenant")[1]
		p.tenant, err = Connect(args[0], name)
		return "", err
	case "churn":
		p.tenant, err = churn(args)
		return "", err
	case "exit":
		os.Exit(0)
	}
	if p.tenant == nil {
		return "", errors.New("say hello first")
	}
	switch command {
	case "again":
		return "", p.tenant.Reconnect()
	case "hold":
		return p.hold()
	case "closefrom":
		return "", unix.CloseRange(3, ^uint(0), 0)
	case "exec":
		return "", become(args)
	}
	numbers, err := parse(args)
	if err != nil {
		return "", err
	}
	switch command {
	case "export":
		taken, err := p.tenant.Export(int(numbers[0]), numbers[1], Key(numbers[2]))
		return fmt.Sprint(taken), err
	case "import":
		charged, err := p.tenant.Import(Key(numbers[0]))
		return fmt.Sprint(charged), err
	case "drop":
		return "", p.tenant.Drop(Key(numbers[0]))
	case "forget":
		p.tenant.Forget(Key(numbers[0]))
		return "", nil
	case "moves":
		in, out, err := p.tenant.AnswerMoves(int(numbers[0]), uint32(numbers[1]))
		return fmt.Sprint(in, out), err
	case "moved":
		return "", p.tenant.SayMoved(int(numbers[0]), numbers[1], abi.MoveDone, 1)
	case "use":
		return "", p.tenant.Use(int(numbers[0]), numbers[1:len(args)]...)
	case "movable", "freed", "lose", "grow", "away":
		return "", p.tenant.onMovable(command, numbers)
	case "want", "drained", "progress", "idle":
		return "", p.tenant.SayTurn(command, uint32(numbers[0]), uint32(numbers[1]), uint32(numbers[2]))
	case "work":
		n := numbers[2]
		p.tenant.Work(int(numbers[0]), numbers[1] != 0, n+numbers[1], n, 1000*n)
		return "", nil
	case "looks":
		count, last, err := p.tenant.Looks()
		return fmt.Sprint(count, last.Gpu, last.Lease), err
	case "display":
		p.tenant.Display(int(numbers[0]), numbers[1], numbers[2])
		return "", nil
	case "note":
		return "", p.tenant.Note(uint32(numbers[0]), uint32(numbers[1]), numbers[2])
	}
	return p.onGPU(command, int(numbers[0]), numbers[1])
}

func (p *program) onGPU(command string, gpu int, n uint64) (string, error) {
	t := p.tenant
	switch command {
	case "alloc":
		return "", t.Alloc(gpu, n)
	case "free":
		t.Free(gpu, n)
		return "", nil
	case "held":
		return fmt.Sprint(t.Held(gpu)), nil
	case "lease":
		return fmt.Sprint(t.Lease(gpu)), nil
	case "window":
		return fmt.Sprint(t.Window(gpu)), nil
	case "credit":
		return fmt.Sprint(t.Credit(gpu)), nil
	case "query":
		answer, err := t.Answer(gpu)
		return fmt.Sprint(answer.Free_bytes, answer.Cap_bytes, answer.Used_bytes), err
	case "swap":
		return fmt.Sprint(t.Swap(gpu)), nil
	case "shown":
		return fmt.Sprint(t.Shown(gpu)), nil
	case "measure":
		bytes, err := t.Measure(gpu, uint32(n))
		return fmt.Sprint(bytes), err
	case "context":
		return fmt.Sprint(t.Context(gpu)), nil
	case "forge":
		t.Forge(gpu, n)
		return "", nil
	case "pooled":
		t.Pooled(gpu, n)
		return "", nil
	}
	return "", fmt.Errorf("unknown command %q", command)
}

// become runs another program in this process.
func become(args []string) error {
	if len(args) > 0 && args[0] == "tenant" {
		return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), roleVariable+"=1"))
	}
	return syscall.Exec("/bin/cat", []string{"cat"}, os.Environ())
}

// hold starts a process that inherits the connection and keeps it until it is killed.
func (p *program) hold() (string, error) {
	conn, _, _ := p.tenant.FDs()
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 2, 2, uintptr(conn)},
	})
	return fmt.Sprint(pid), err
}

// parse reads a GPU's place and other numbers, which may be missing.
func parse(args []string) (numbers [3]uint64, err error) {
	for i, a := range args[:min(len(args), len(numbers))] {
		if numbers[i], err = strconv.ParseUint(a, 0, 64); err != nil {
			return numbers, err
		}
	}
	return numbers, nil
}
