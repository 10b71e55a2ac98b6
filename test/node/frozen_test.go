package node_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/node"
)

// Services that hang are ended and started again by polylet run within about a
// minute, and no container notices.
func TestServicesThatHangAreStartedAgain(t *testing.T) {
	if os.Getenv("POLYLET_LONG_TESTS") == "" {
		t.Skip("takes minutes; set POLYLET_LONG_TESTS=1 to run it (make soak)")
	}
	h := build(t, plan{supervised: true})
	h.create(webApp("web"))
	before := h.waitReady("web", time.Minute)
	run := h.node.Processes["run"].Pid()
	frozen := map[string]int{}
	for _, service := range node.Services() {
		pid, err := childOf(run, service)
		h.must(err)
		h.must(syscall.Kill(pid, syscall.SIGSTOP))
		frozen[service] = pid
	}
	h.eventually(3*time.Minute, "all services run again", func() error {
		for service, old := range frozen {
			pid, err := childOf(run, service)
			if err != nil {
				return err
			}
			if pid == old {
				return fmt.Errorf("%s is still process %d, which hangs", service, pid)
			}
		}
		return nil
	})
	h.waitNodeReady()
	h.create(webApp("later"))
	h.waitReady("later", time.Minute)
	after, err := h.pod("web")
	h.must(err)
	if was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; is.RestartCount != was.RestartCount || is.ContainerID != was.ContainerID {
		t.Errorf("web's container was %+v and is %+v", was, is)
	}
}
