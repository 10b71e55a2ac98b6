package rpc

import (
	"testing"
	"time"

	"github.com/polylet/polylet/internal/uds"
)

func TestRefusedCallsDoNotFillTheLog(t *testing.T) {
	var r refusals
	lines, now := 0, time.Now()
	call := func(uid uint32, method string) (unsaid int) {
		speak, unsaid := r.next(uds.Peer{UID: uid}, method, now)
		if speak {
			lines++
		}
		return unsaid
	}
	for range 1000 {
		call(1000, "/a")
		call(1000, "/b")
		call(1001, "/a")
	}
	if lines != 3 {
		t.Errorf("%d lines for three kinds of refused calls", lines)
	}
	for i := range uint32(10000) {
		call(i, "/c")
	}
	if lines > mostRefused+1 || len(r.count) > mostRefused+1 {
		t.Errorf("%d lines, %d kinds held", lines, len(r.count))
	}
	now = now.Add(quietFor)
	said := lines
	if unsaid := call(1000, "/a"); lines != said+1 || unsaid != 3*1000+10000-said {
		t.Errorf("after a minute: %d lines, %d were not said; want one, and %d", lines-said, unsaid, 3*1000+10000-said)
	}
}
