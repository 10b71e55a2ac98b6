package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// statuses are those of n containers that wait, each with this much in its texts.
func statuses(n, texts, mounts int) v1.PodStatus {
	long := strings.Repeat("é", texts/2)
	st := v1.PodStatus{
		Phase: v1.PodPending, Message: long,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Message: long}},
	}
	for i := range n {
		c := v1.ContainerStatus{Name: fmt.Sprint(i), Image: long, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "InvalidImageName", Message: long}}}
		if mounts > 0 {
			c.VolumeMounts = []v1.VolumeMountStatus{{Name: "v", MountPath: strings.Repeat("m", mounts)}}
		}
		st.ContainerStatuses = append(st.ContainerStatuses, c)
	}
	return st
}

func TestWhatASpecSaysKeepsNoStatusFromBeingWritten(t *testing.T) {
	for name, c := range map[string]struct{ containers, texts, mounts, most int }{
		"a name of a megabyte": {1, 1 << 20, 0, 128 << 10},
		"a path of a megabyte": {1, 0, 1 << 20, 1 << 10},
		"two hundred of 5 KiB": {200, 5 << 10, 4 << 10, 1 << 20},
	} {
		got := normalize(statuses(c.containers, c.texts, c.mounts), v1.PodStatus{})
		raw, err := json.Marshal(got)
		if err != nil || len(raw) > c.most {
			t.Errorf("%s: the status has %d bytes, %v", name, len(raw), err)
		}
		if text := got.ContainerStatuses[0].State.Waiting.Message; !utf8.ValidString(text) || c.texts > 0 && text == "" {
			t.Errorf("%s: the message is %.20q", name, text)
		}
	}
	ordinary := statuses(3, 300, 40)
	if got := normalize(ordinary, v1.PodStatus{}); !same(got, ordinary) || len(got.ContainerStatuses[2].VolumeMounts) != 1 {
		t.Errorf("an ordinary one is changed: %+v", got)
	}
}

func TestAStatusThatIsTooLargeIsNoApiserverThatIsAway(t *testing.T) {
	for text, away := range map[string]bool{
		"etcdserver: request is too large": false,
		"rpc error: code = ResourceExhausted desc = trying to send message larger than max (3601099 vs. 2097152)": false,
		"etcdserver: leader changed": true,
	} {
		if err := error(apierrors.NewInternalError(errors.New(text))); isAway(err) != away {
			t.Errorf("%s: away is %v", text, !away)
		}
	}
}

// TestAStatusThatFailsIsNotTriedWithEachThatDoesNot: the success of one shows that
// the apiserver is back, not that the other will be taken.
func TestAStatusThatFailsIsNotTriedWithEachThatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int32
		b := start(t, fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb == "patch" && q.Name == "bad" {
				failed.Add(1)
				return fakeapiserver.Fault{Status: 500}
			}
			return fakeapiserver.Fault{}
		}}, nil)
		b.w.Set(b.create("bad"), v1.PodStatus{Phase: v1.PodRunning})
		time.Sleep(2 * time.Minute)
		before := failed.Load()
		for i := range 100 {
			b.w.Set(b.create(fmt.Sprintf("good%d", i)), v1.PodStatus{Phase: v1.PodRunning})
			time.Sleep(time.Second)
		}
		if n := failed.Load() - before; n < 5 || n > 25 {
			t.Errorf("while 100 others were written in 100 s it was tried %d times", n)
		}
	})
}
