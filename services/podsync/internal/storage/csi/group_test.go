package csi

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// hangs is a process that waits for whoever answers for a volume.
type hangs struct{ asked chan string }

func (h hangs) Follow(ctx context.Context, _ string, _ func(string), call string, args ...string) (string, error) {
	h.asked <- call + " " + strings.Join(args, " ")
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// TestTheFilesOfAVolumeThatHangsAreGivenByAnotherProcess: nothing of podsync looks at them,
// and the wait ends with the pod.
func TestTheFilesOfAVolumeThatHangsAreGivenByAnotherProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	group, onMismatch := int64(4242), v1.FSGroupChangeOnRootMismatch
	b := newBench(t, nil).register(t)
	by := hangs{make(chan string, 1)}
	b.deps.Apart = by
	b.cluster.driver.Spec.FSGroupPolicy = policy(storagev1.FileFSGroupPolicy)
	r := b.request()
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: &onMismatch}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the pod is gone")
	done := make(chan error, 1)
	go func() {
		_, err := b.Setup(ctx, r)
		done <- err
	}()
	target := b.dir() + "/mount"
	var asked string
	select {
	case asked = <-by.asked:
	case err := <-done:
		t.Fatalf("nobody was asked: %v", err)
	}
	if want := `give-to-group {"root":"` + target + `","group":4242,"onMismatch":true,"skip":true}`; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) || !strings.Contains(err.Error(), "applyFSGroup failed for vol ") {
		t.Error(err)
	}
	if groupOf(t, target) == uint32(group) {
		t.Error("podsync has given it itself")
	}
}
