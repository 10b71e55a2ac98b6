package ownership

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Events records events on pods; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
}

// People are told of a volume that takes long to give, and again as long as it does.
const (
	givingIsSlow = 30 * time.Second
	givingAgain  = time.Minute
)

// TellSlow tells of a slow giving of a pod's volume in a directory until end is called;
// given is how many files have been.
func TellSlow(events Events, pod *v1.Pod, dir string, given func() int64) (end func()) {
	shown := dir[max(strings.Index(dir, string(pod.UID)), 0):]
	text := fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", shown)
	first := true
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(givingIsSlow)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			if !first {
				text = fmt.Sprintf("Setting volume ownership for %s, processed %d files.", shown, given())
			}
			first = false
			events.Pod(pod, v1.EventTypeWarning, "VolumePermissionChangeInProgress", text)
			timer.Reset(givingAgain)
		}
	}()
	return func() { close(done); <-ended }
}
