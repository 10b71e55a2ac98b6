package worker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// instances of one container of a pod, newest first; r runs, the rest is dead.
func instances(uid, name, states string) podstate.Observed {
	var o podstate.Observed
	for i, s := range states {
		c := podstate.Container{ID: fmt.Sprintf("%s/%s%d", uid, name, len(states)-i), Name: name, State: podstate.StateExited}
		if s == 'r' {
			c.State = podstate.StateRunning
		}
		c.CreatedAt = time.Unix(int64(uid[0])+int64(len(states)-i)*100, 0)
		o.Containers = append(o.Containers, c)
	}
	return o
}

func TestNoMoreDeadContainersStayThanTheNodeMayHave(t *testing.T) {
	for name, tc := range map[string]struct {
		pods []podstate.Observed
		most int
		want []string
	}{
		"no bound":                        {[]podstate.Observed{instances("a", "c", "rddd")}, -1, nil},
		"as many as may stay":             {[]podstate.Observed{instances("a", "c", "rddd")}, 3, nil},
		"one too many: the oldest":        {[]podstate.Observed{instances("a", "c", "rddd")}, 2, []string{"a/c1"}},
		"each has its part":               {[]podstate.Observed{instances("a", "c", "rddd"), instances("b", "c", "rd")}, 2, []string{"a/c1", "a/c2"}},
		"fewer than containers":           {[]podstate.Observed{instances("a", "c", "rd"), instances("b", "c", "rd")}, 1, []string{"a/c1"}},
		"none may stay":                   {[]podstate.Observed{instances("a", "c", "rd"), instances("b", "c", "rd")}, 0, []string{"a/c1", "b/c1"}},
		"the newest stays though it died": {[]podstate.Observed{instances("a", "c", "ddd"), instances("b", "c", "d")}, 0, []string{"a/c1", "a/c2"}},
	} {
		t.Run(name, func(t *testing.T) {
			pods := map[types.UID]podstate.Observed{}
			for i, o := range tc.pods {
				pods[types.UID(fmt.Sprint(i))] = o
			}
			var got []string
			for _, ids := range excess(pods, tc.most, nil) {
				for id := range ids {
					got = append(got, id)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q go, want %q", got, tc.want)
			}
		})
	}
}

func TestADeadContainerThatIsOnItsWayIsNotJoinedByAnother(t *testing.T) {
	pods := map[types.UID]podstate.Observed{"0": instances("a", "c", "rd"), "1": instances("b", "c", "rd")}
	got := excess(pods, 1, map[types.UID]map[string]bool{"1": {"b/c1": true}})
	if len(got) != 1 || !got["1"]["b/c1"] {
		t.Errorf("%v go, want the one that was named before", got)
	}
}

func TestDeadContainersOfAllPodsShareWhatTheNodeMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := fakecri.Exits(time.Minute, 1)
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": script}})
		most := 2
		r.reg.cfg.MaxDead = &most
		r.reg.Ready("api")
		for _, name := range []string{"p", "q", "s"} {
			r.reg.Set(newPod(name, v1.Container{Image: "app:1"}), "api")
		}
		time.Sleep(time.Hour)
		r.until("all run again", time.Hour, func() bool { return r.count(false) == 3 })
		r.until("no more dead ones are left than may stay", time.Second, func() bool { return r.count(true) <= most })
		for _, name := range []string{"p", "q", "s"} {
			st := r.status(types.UID("uid-" + name)).ContainerStatuses[0]
			if st.LastTerminationState.Terminated == nil || st.RestartCount < 3 {
				t.Errorf("%s: %d restarts, last state %+v", name, st.RestartCount, st.LastTerminationState)
			}
		}
	})
}

// count is how many containers the runtime has that have ended, or that run.
func (r *rig) count(dead bool) (n int) {
	for _, c := range r.rt.Snapshot().Containers {
		if ended := c.State == fakecri.Exited; ended == dead {
			n++
		}
	}
	return n
}
