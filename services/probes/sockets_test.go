package probes

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
)

func TestThatProbesFindNoSocketIsShownUntilAMinuteAfterTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := health.NewTracker(logr.Discard())
		s := &sockets{health: told}
		for range 3 {
			for range 10 {
				s.lack(syscall.EMFILE)
				time.Sleep(30 * time.Second)
			}
			s.lack(syscall.EADDRNOTAVAIL)
			time.Sleep(59 * time.Second)
			deps := told.Dependencies()
			if len(deps) != 1 || deps[0].Ready || !strings.Contains(deps[0].Message, "net.ipv4.ip_local_port_range") {
				t.Errorf("while sockets lack: %+v", deps)
			}
			time.Sleep(2 * time.Second)
			if ok, _ := told.Ready(); !ok {
				t.Errorf("a minute after: %+v", told.Dependencies())
			}
		}
	})
}
