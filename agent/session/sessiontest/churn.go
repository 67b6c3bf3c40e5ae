package sessiontest

// A load that may never be refused, and the book that proves it.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Book is memory that a test shares with its tenants, to check the agent from outside. Before a
// tenant allocates it reserves as much in the book, so the agent must never refuse; what it holds
// it adds to the book, so the book must never be above the cap.
type Book struct {
	path string
	page *bookPage
}

// The number of tenants that a book has room for.
const bookTenants = 256

type bookPage struct {
	reserved atomic.Uint64 // what all hold or are about to
	held     atomic.Int64  // what all hold
	stop     atomic.Uint64 // 1: tenants are to end
	tenants  [bookTenants]bookTenant
}

// bookTenant is one tenant's part, by which the dead's share is taken out again.
type bookTenant struct {
	reserved atomic.Uint64
	held     atomic.Int64
	turns    atomic.Uint64
}

// NewBook makes a book in a file.
func NewBook(path string) (*Book, error) {
	if err := os.WriteFile(path, make([]byte, unsafe.Sizeof(bookPage{})), 0o600); err != nil {
		return nil, err
	}
	return OpenBook(path)
}

// OpenBook opens a book that another process has made.
func OpenBook(path string) (*Book, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(bookPage{})),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Book{path: path, page: (*bookPage)(unsafe.Pointer(&memory[0]))}, nil
}

// Held is what all tenants hold now.
func (b *Book) Held() int64 { return b.page.held.Load() }

// Reserved is what one tenant holds or is about to.
func (b *Book) Reserved(tenant int) uint64 { return b.page.tenants[tenant].reserved.Load() }

// Turns is how many allocations one tenant has made.
func (b *Book) Turns(tenant int) uint64 { return b.page.tenants[tenant].turns.Load() }

// Stop asks all tenants to end their churn.
func (b *Book) Stop() { b.page.stop.Store(1) }

// Bury takes a dead tenant's share out of the book. The tenant must have been waited for.
func (b *Book) Bury(tenant int) {
	t := &b.page.tenants[tenant]
	b.page.held.Add(-t.held.Swap(0))
	b.page.reserved.Add(-t.reserved.Swap(0))
}

// ChurnCommand is the command that makes a process one of the book's tenants: it allocates and
// frees at random, at most most bytes at a time, until the book says stop or something is wrong.
// limit is the cap in bytes.
func (b *Book) ChurnCommand(socket string, tenant int, seed, limit, most uint64) string {
	return fmt.Sprintf("churn %s %s %d %d %d %d", socket, b.path, tenant, seed, limit, most)
}

// churn returns the tenant, which then still holds what it holds.
func churn(args []string) (*Tenant, error) {
	if len(args) != 6 {
		return nil, errors.New("churn needs SOCKET BOOK TENANT SEED CAP MOST")
	}
	var n [4]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(args[2+i], 10, 64); err != nil {
			return nil, err
		}
	}
	book, err := OpenBook(args[1])
	if err != nil {
		return nil, err
	}
	tenant, err := connectPatiently(args[0])
	if err != nil {
		return nil, err
	}
	c := &churner{
		tenant: tenant, page: book.page, own: &book.page.tenants[n[0]],
		random: rand.New(rand.NewPCG(n[1], n[0])), limit: n[2], most: n[3],
	}
	for book.page.stop.Load() == 0 {
		if err := c.turn(); err != nil {
			return nil, fmt.Errorf("tenant %d, seed %d, turn %d, holding %d: %w", n[0], n[1],
				c.own.turns.Load(), tenant.Held(0), err)
		}
	}
	return tenant, nil
}

// connectPatiently is Connect for as long as an agent may be away.
func connectPatiently(socket string) (*Tenant, error) {
	for left := awayDefault; ; left -= reconnectFirst {
		t, err := Connect(socket, "churn")
		if err == nil || left <= 0 {
			return t, err
		}
		time.Sleep(reconnectFirst)
	}
}

type churner struct {
	tenant *Tenant
	page   *bookPage
	own    *bookTenant
	random *rand.Rand
	limit  uint64
	most   uint64
	blocks []uint64
}

// turn allocates or frees one block. The order of changes to the book is such that a kill between
// two of them errs on the side that raises no false alarm: reserved too high, or held too low.
func (c *churner) turn() error {
	n := 512 * (1 + c.random.Uint64N(c.most/512))
	// Allocations are a little more frequent, so that the cap is always near.
	if c.random.IntN(5) < 3 && c.reserve(n) {
		if err := c.tenant.Alloc(0, n); err != nil {
			return fmt.Errorf("%d bytes with %d of %d reserved: %w", n, c.page.reserved.Load(),
				c.limit, err)
		}
		c.own.held.Add(int64(n))
		now := c.page.held.Add(int64(n))
		c.own.turns.Add(1)
		if now > int64(c.limit) {
			return fmt.Errorf("%d bytes held under a cap of %d", now, c.limit)
		}
		c.blocks = append(c.blocks, n)
		return nil
	}
	if len(c.blocks) == 0 {
		time.Sleep(20 * time.Microsecond) // others hold all; they need the processor more
		return nil
	}
	i := c.random.IntN(len(c.blocks))
	n = c.blocks[i]
	c.blocks[i] = c.blocks[len(c.blocks)-1]
	c.blocks = c.blocks[:len(c.blocks)-1]
	c.page.held.Add(-int64(n))
	c.own.held.Add(-int64(n))
	c.tenant.Free(0, n)
	c.unreserve(n)
	return nil
}

func (c *churner) reserve(n uint64) bool {
	for {
		now := c.page.reserved.Load()
		if now+n > c.limit {
			return false
		}
		if c.page.reserved.CompareAndSwap(now, now+n) {
			c.own.reserved.Add(n)
			return true
		}
	}
}

func (c *churner) unreserve(n uint64) {
	c.own.reserved.Add(-n)
	c.page.reserved.Add(-n)
}
