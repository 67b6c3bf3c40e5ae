// The program that tests start under `weir run`.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// child is the program that tests start under `weir run`: this test binary in another role.
func child(mode string) int {
	switch mode {
	case "count": // says "ready", then how often it got each of a few signals
		return countSignals()
	case "orphan": // leaves a grandchild behind, whose parent has gone
		return leaveOrphan()
	case "sleep":
		fmt.Println("ready")
		time.Sleep(time.Minute)
	}
	return 0
}

// countSignals exits when it has heard nothing for a while after the first signal. It prints
// signal numbers and counts.
func countSignals() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Printf("ready %d\n", os.Getpid())
	counts := map[os.Signal]int{}
	var quiet <-chan time.Time
	for {
		select {
		case got := <-signals:
			counts[got]++
			quiet = time.After(300 * time.Millisecond)
		case <-quiet:
			for got, count := range counts {
				fmt.Printf("signal %d: %d\n", got, count)
			}
			return 42
		case <-time.After(20 * time.Second):
			return 1
		}
	}
}

// leaveOrphan has a shell start a process and end, and says who is that process's parent then.
func leaveOrphan() int {
	shell := exec.Command("sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!")
	text, err := shell.Output()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	pid := strings.TrimSpace(string(text))
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("orphan %s has parent %s\n", pid, strings.Fields(string(stat))[3])
	return 0
}
