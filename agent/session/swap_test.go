// Tests of containers that ask for swap, with a driver that says where it can be.

package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/agent/control"
)

// Containers that ask for swap do not start where no GPU can have it. The driver is asked once about each GPU, and
// never about a container that asks for none; where it does not tell, swap is taken for possible.
func TestSwapWhereItCannotBe(t *testing.T) {
	groups(t)
	for name, test := range map[string]struct {
		first, others bool // what the driver says of GPU 0, and of the rest
		err           error
		refused       bool
	}{
		"nowhere":          {false, false, nil, true},
		"on all":           {true, true, nil, false},
		"on one":           {true, false, nil, false},
		"not to be learnt": {false, false, errors.New("no driver"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var about []string
			var b *bench
			b = start(t, hooked, func(o *Options) {
				o.Managed = func(_ context.Context, uuid string) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					about = append(about, uuid)
					return test.others && uuid != b.gpus[0].uuid || test.first && uuid == b.gpus[0].uuid, test.err
				}
			})
			if _, err := b.Prepare(t.Context(), asking("plain", "1GiB")); err != nil || len(about) != 0 {
				t.Errorf("%v; the driver was asked about %v", err, about)
			}
			for _, id := range []string{"one", "two"} {
				asked := asking(id, "1GiB")
				asked.Annotations["weir/swap"] = "1GiB"
				_, err := b.Prepare(t.Context(), asked)
				const want = "weir/swap: no GPU of this node can have swap, since GPU 0 ("
				if refused := errors.Is(err, control.ErrInvalid) && strings.Contains(err.Error(), want); refused != test.refused ||
					!refused && err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			slices.Sort(about)
			if len(about) != len(b.gpus) || len(slices.Compact(about)) != len(b.gpus) {
				t.Errorf("the driver was asked about %v", about)
			}
		})
	}
}
