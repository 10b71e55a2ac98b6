package ownership

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type told struct {
	mu   sync.Mutex
	list []string
}

func (e *told) Pod(pod *v1.Pod, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, pod.Name+": "+kind+" "+reason+": "+message)
}

func (e *told) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.list
}

func TestPeopleAreToldOfAVolumeThatTakesLongToGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events told
		var given atomic.Int64
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-1"}}
		end := TellSlow(&events, pod, "/root/pods/uid-1/volumes/x", given.Load)
		time.Sleep(givingIsSlow - time.Second)
		if got := events.all(); len(got) > 0 {
			t.Errorf("told early: %q", got)
		}
		given.Store(9)
		time.Sleep(givingAgain + 2*time.Second)
		end()
		got := events.all()
		if len(got) != 2 || !strings.HasPrefix(got[0], "p: Warning VolumePermissionChangeInProgress: Setting volume ownership for uid-1/volumes/x is taking longer than expected, consider using OnRootMismatch") ||
			got[1] != "p: Warning VolumePermissionChangeInProgress: Setting volume ownership for uid-1/volumes/x, processed 9 files." {
			t.Errorf("told %q", got)
		}
	})
}

func TestFilesThatAreGivenAreCounted(t *testing.T) {
	root, _ := tree(t)
	var given atomic.Int64
	if err := (Change{Group: give(group), Given: &given}).Apply(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if n := given.Load(); n != 6 { // the root, two directories, a file and two links
		t.Errorf("%d were counted", n)
	}
}
