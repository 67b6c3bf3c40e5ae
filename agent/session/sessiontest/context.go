package sessiontest

// What a tenant says and asks about contexts.

import (
	"fmt"
	"sync/atomic"

	"weir/cgo/abi"
)

// Measure asks what one context takes on a GPU, where the process has so many, and nothing else that
// it has not declared.
func (t *Tenant) Measure(gpu int, contexts uint32) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		if err := t.hello(); err != nil {
			return 0, err
		}
	}
	var answer abi.Measured
	t.seq++
	question := Packet(abi.MsgMeasure, t.seq, &abi.Measure{Gpu: uint32(gpu), Contexts: contexts})
	err := t.roundTrip(question, abi.MsgMeasured, &answer)
	if err == nil && (answer.Header.Seq != t.seq || answer.Gpu != uint32(gpu)) {
		err = fmt.Errorf("MEASURED %+v, where question %d about GPU %d was due", answer, t.seq, gpu)
	}
	return answer.Bytes, err
}

// Display writes what the process's contexts, and their code and limits, take on a GPU.
func (t *Tenant) Display(gpu int, contexts, code uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.usage.Gpus[gpu]
	atomic.StoreUint64(&g.Context_bytes, contexts)
	atomic.StoreUint64(&g.Code_bytes, code)
}

// Context is what the control page says that one context takes on a GPU, and whether it counts.
func (t *Tenant) Context(gpu int) (bytes uint64, counted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.control.Gpus[gpu]
	flags := atomic.LoadUint32(&g.Flags)
	return atomic.LoadUint64(&g.Context_bytes), flags&abi.GPUCountContext != 0
}
