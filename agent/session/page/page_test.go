package page

// Tests of both pages: what their seals refuse, and what both sides may do at once.

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

func newUsage(t *testing.T) (*Usage, int) {
	t.Helper()
	u, fd, err := NewUsage(7)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fd)
		u.Close()
	})
	return u, fd
}

func newControl(t *testing.T) *Control {
	t.Helper()
	c, err := NewControl(3, [][16]byte{{1}, {2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// duplicate is the descriptor that a tenant gets.
func duplicate(t *testing.T, c *Control) int {
	t.Helper()
	fd := c.Dup()
	if fd < 0 {
		t.Fatal("no descriptor")
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// tenantMapping maps a descriptor as a tenant does.
func tenantMapping(t *testing.T, fd, protection int) []byte {
	t.Helper()
	memory, err := unix.Mmap(fd, 0, abi.PageBytes, protection, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	return memory
}

func TestUsagePageCannotBeResized(t *testing.T) {
	_, fd := newUsage(t)
	for _, size := range []int64{0, 1, abi.PageBytes - 1, abi.PageBytes + 1, 1 << 30} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("ftruncate to %d: %v", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("a tenant could seal the page against the agent")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, abi.PageBytes); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing behind the end: %v", err)
	}
}

// TestPunchedHole: the seals do not keep a tenant from emptying its page; it only loses its credit.
func TestPunchedHole(t *testing.T) {
	u, fd := newUsage(t)
	if ok, err := u.Give(1, 0, 0, 500); !ok || err != nil {
		t.Fatal(ok, err)
	}
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(fd, mode, 0, abi.PageBytes); err != nil {
		t.Fatal(err)
	}
	if got, err := u.Credit(1, 500); got != 0 || err != nil {
		t.Errorf("credit %d, %v", got, err)
	}
}

func TestControlPageCannotBeWritten(t *testing.T) {
	c := newControl(t)
	fd := duplicate(t, c)
	for _, protection := range []int{unix.PROT_WRITE, unix.PROT_READ | unix.PROT_WRITE} {
		if m, err := unix.Mmap(fd, 0, abi.PageBytes, protection, unix.MAP_SHARED); err == nil {
			unix.Munmap(m)
			t.Error("mapped for writing")
		}
	}
	memory := tenantMapping(t, fd, unix.PROT_READ)
	if err := unix.Mprotect(memory, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("made writable after mapping")
	}
	again, err := unix.Open(fmt.Sprint("/proc/self/fd/", fd), unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	if _, err := unix.Pwrite(again, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("opened again and written: %v", err)
	}
	if m, err := unix.Mmap(again, 0, abi.PageBytes, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		unix.Munmap(m)
		t.Error("opened again and mapped for writing")
	}
	if err := unix.Ftruncate(again, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("opened again and truncated: %v", err)
	}
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(again, mode, 0, abi.PageBytes); !errors.Is(err, unix.EPERM) {
		t.Errorf("opened again and punched: %v", err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Error("written through the descriptor")
	}
}

func TestControlPageIsConsistent(t *testing.T) {
	c := newControl(t)
	p := (*abi.ControlPage)(unsafe.Pointer(&tenantMapping(t, duplicate(t, c), unix.PROT_READ)[0]))
	if p.Magic != abi.ControlMagic || p.Count != 2 || p.Generation != 3 || p.Gpus[1].Uuid[0] != 2 ||
		p.Gpus[0].Cap_bytes != abi.Unlimited {
		t.Fatalf("page begins %+v", p.Gpus[:2])
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range uint64(20_000) {
			c.SetGPU(1, Account{Cap: i, Charged: i, Swap: i, Movable: i, Holders: int(i)})
		}
		c.End()
	})
	g := &p.Gpus[1]
	for atomic.LoadUint32(&p.Ended) == 0 {
		before := atomic.LoadUint32(&g.Sequence)
		limit, charged := atomic.LoadUint64(&g.Cap_bytes), atomic.LoadUint64(&g.Charged_bytes)
		holders := atomic.LoadUint32(&g.Holders)
		if before%2 == 1 || before != atomic.LoadUint32(&g.Sequence) || before == 0 {
			continue
		}
		if limit != charged || uint64(holders) != limit {
			t.Fatalf("torn: cap %d, charged %d, holders %d", limit, charged, holders)
		}
	}
	writer.Wait()
}

func TestForgedCredit(t *testing.T) {
	u, fd := newUsage(t)
	p := (*abi.UsagePage)(unsafe.Pointer(&tenantMapping(t, fd, unix.PROT_READ|unix.PROT_WRITE)[0]))
	for _, forged := range []uint64{101, 1 << 63, ^uint64(0)} {
		atomic.StoreUint64(&p.Gpus[0].Credit_bytes, forged)
		if _, err := u.Credit(0, 100); !errors.Is(err, ErrForged) {
			t.Errorf("credit of %d read: %v", forged, err)
		}
		if got, err := u.Take(0, 0, 100, 50, quietly); got != 0 || !errors.Is(err, ErrForged) {
			t.Errorf("credit of %d: took %d, %v", forged, got, err)
		}
		if ok, err := u.Give(0, 0, 100, 50); ok || !errors.Is(err, ErrForged) {
			t.Errorf("credit of %d: added, %v", forged, err)
		}
	}
	atomic.StoreUint64(&p.Gpus[0].Credit_bytes, 100)
	if got, err := u.Take(0, 0, 100, 150, quietly); got != 100 || err != nil {
		t.Errorf("took %d, %v", got, err)
	}
	atomic.StoreUint64(&p.Gpus[0].Credit_bytes, 100)
	for _, forged := range []uint64{0, 2, ^uint64(0)} { // the count is 1 now
		atomic.StoreUint64(&p.Gpus[0].Moves, forged)
		if got, err := u.Take(0, 1, 100, 50, quietly); got != 0 || !errors.Is(err, ErrForged) {
			t.Errorf("count of %d: took %d, %v", forged, got, err)
		}
		if ok, err := u.Give(0, 1, 100, 50); ok || !errors.Is(err, ErrForged) {
			t.Errorf("count of %d: added, %v", forged, err)
		}
	}
}

func quietly(uint64) error { return nil }

// TestMovesAreCounted: whoever finds the page knows whether the move that was announced was made.
func TestMovesAreCounted(t *testing.T) {
	u, _ := newUsage(t)
	if ok, err := u.Give(3, 0, 0, 700); !ok || err != nil || u.Moves(3) != 1 || u.Moves(2) != 0 {
		t.Fatal(ok, err, u.Moves(3))
	}
	announced := uint64(0)
	got, err := u.Take(3, 1, 700, 300, func(bytes uint64) error {
		announced = bytes
		if u.Moves(3) != 1 {
			t.Error("moved before it was announced")
		}
		return nil
	})
	if got != 300 || announced != 300 || err != nil || u.Moves(3) != 2 {
		t.Errorf("took %d of %d announced, count %d, %v", got, announced, u.Moves(3), err)
	}
	refused := errors.New("no")
	if _, err := u.Take(3, 2, 400, 1, func(uint64) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if credit, err := u.Credit(3, 400); credit != 400 || u.Moves(3) != 2 || err != nil {
		t.Errorf("credit %d, count %d, %v", credit, u.Moves(3), err)
	}
}

func TestIntact(t *testing.T) {
	u, fd := newUsage(t)
	memory := tenantMapping(t, fd, unix.PROT_READ|unix.PROT_WRITE)
	if ok, err := u.Give(1, 0, 0, 500); !ok || err != nil {
		t.Fatal(ok, err)
	}
	granted, moves := []uint64{0, 600}, []uint64{0, 1}
	if err := u.Intact(7, granted, moves); err != nil {
		t.Error(err)
	}
	p := (*abi.UsagePage)(unsafe.Pointer(&memory[0]))
	atomic.StoreUint64(&p.Gpus[1].Credit_bytes, 0) // all of it used
	if err := u.Intact(7, granted, moves); err != nil {
		t.Error(err)
	}
	for name, word := range map[string]*uint64{
		"magic": (*uint64)(unsafe.Pointer(&p.Magic)), "session": &p.Session,
		"credit without a grant": &p.Gpus[0].Credit_bytes, "credit": &p.Gpus[1].Credit_bytes,
		"count": &p.Gpus[1].Moves,
	} {
		was := atomic.SwapUint64(word, 1000)
		if err := u.Intact(7, granted, moves); !errors.Is(err, ErrForged) {
			t.Errorf("%s written over: %v", name, err)
		}
		atomic.StoreUint64(word, was)
	}
	if err := u.Intact(7, granted, moves); err != nil {
		t.Error(err)
	}
}

// TestBothSidesAtOnce: agent and tenant move the same word, and not a byte is lost or made.
func TestBothSidesAtOnce(t *testing.T) {
	u, fd := newUsage(t)
	p := (*abi.UsagePage)(unsafe.Pointer(&tenantMapping(t, fd, unix.PROT_READ|unix.PROT_WRITE)[0]))
	const granted = 1 << 20
	if ok, err := u.Give(0, 0, 0, granted); !ok || err != nil {
		t.Fatal(ok, err)
	}
	var used uint64
	var tenant sync.WaitGroup
	tenant.Go(func() {
		word := &p.Gpus[0].Credit_bytes
		for range 100_000 {
			if c := atomic.LoadUint64(word); c >= 3 && atomic.CompareAndSwapUint64(word, c, c-3) {
				used += 3
			} else if used > 0 {
				atomic.AddUint64(word, 1)
				used--
			}
		}
	})
	left, moves := uint64(granted), uint64(1)
	for range 20_000 {
		got, err := u.Take(0, moves, left, 5, quietly)
		if err != nil {
			t.Fatal(err)
		}
		if got > 0 {
			moves++
		}
		left -= got
	}
	tenant.Wait()
	if credit, err := u.Credit(0, left); err != nil || credit+used != left {
		t.Errorf("credit %d and used %d of a grant of %d, %v", credit, used, left, err)
	}
}

// TestTakeFromABusyTenant: a tenant that keeps its word moving while the agent announces what it is
// about to take does not keep its credit by that.
func TestTakeFromABusyTenant(t *testing.T) {
	u, fd := newUsage(t)
	p := (*abi.UsagePage)(unsafe.Pointer(&tenantMapping(t, fd, unix.PROT_READ|unix.PROT_WRITE)[0]))
	const granted, most = 1 << 20, 1 << 16
	if ok, err := u.Give(0, 0, 0, granted); !ok || err != nil {
		t.Fatal(ok, err)
	}
	var stop atomic.Bool
	var tenant sync.WaitGroup
	tenant.Go(func() {
		for word := &p.Gpus[0].Credit_bytes; !stop.Load(); {
			atomic.AddUint64(word, ^uint64(511))
			atomic.AddUint64(word, 512)
		}
	})
	left := uint64(granted)
	for i := range uint64(10) {
		tries := 0
		got, err := u.Take(0, i+1, left, most, func(uint64) error {
			tries++
			time.Sleep(100 * time.Microsecond)
			return nil
		})
		if err != nil || got != most || tries > 2 {
			t.Errorf("took %d of %d after announcing %d times: %v", got, most, tries, err)
		}
		left -= got
	}
	stop.Store(true)
	tenant.Wait()
}

func TestReopen(t *testing.T) {
	u, fd, err := NewUsage(7)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if ok, err := u.Give(0, 0, 0, 100); !ok || err != nil {
		t.Fatal(ok, err)
	}
	check := func(how string) {
		t.Helper()
		again, err := Reopen(os.Getpid(), u.Inode())
		if err != nil {
			t.Errorf("%s: %v", how, err)
			return
		}
		defer again.Close()
		if got, err := again.Credit(0, 100); got != 100 || err != nil {
			t.Errorf("%s: credit %d, %v", how, got, err)
		}
	}
	check("by its descriptor")
	unix.Close(fd)
	if os.Geteuid() == 0 {
		check("by its mapping")
	}
}

// TestReopenRefusesOthers: a page of the right name that the agent has not made is not accepted.
func TestReopenRefusesOthers(t *testing.T) {
	fd, err := unix.MemfdCreate(usageName, unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	refuse := func(what string) {
		t.Helper()
		if u, err := Reopen(os.Getpid(), st.Ino); err == nil {
			u.Close()
			t.Errorf("accepted: %s", what)
		}
	}
	refuse("an empty memfd")
	if err := unix.Ftruncate(fd, abi.PageBytes); err != nil {
		t.Fatal(err)
	}
	refuse("one without seals, which can be truncated")
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, usageSeals|unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	refuse("one that the agent cannot write")
	if u, err := Reopen(1<<22+1, st.Ino); err == nil {
		u.Close()
		t.Error("accepted: a page of no process")
	}
}
