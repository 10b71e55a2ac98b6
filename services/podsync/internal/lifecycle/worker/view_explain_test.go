package worker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

func whats(entries []timeline.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, e.What)
	}
	return out
}

func TestWhatHangsIsWaitedForSinceItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		hang := make(chan struct{})
		r.e.setup = func(*v1.Pod) error {
			r.e.mu.Unlock() // only this pod hangs
			<-hang
			r.e.mu.Lock()
			return nil
		}
		r.reg.Ready("api")
		began := time.Now()
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(10 * time.Minute)
		why, ok := r.reg.Explain(pod.UID)
		at := slices.IndexFunc(why.Waits, func(w podstate.Wait) bool { return w.Kind == "volume" })
		if !ok || at < 0 || why.Waits[at].Since.Sub(began) > time.Second || why.Waits[at].Since.Before(began) {
			t.Errorf("%+v", why.Waits)
		}
		if last := why.Timeline[len(why.Timeline)-1]; !last.Running || last.What != string(podstate.SetupVolumes) {
			t.Errorf("the last entry is %+v", last)
		}
		close(hang)
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		time.Sleep(time.Second)
		if why, _ := r.reg.Explain(pod.UID); len(why.Waits) != 0 {
			t.Errorf("a ready pod waits for %+v", why.Waits)
		}
	})
}

func TestThePodsStoryIsToldAfterItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Remove(pod.UID, "api")
		time.Sleep(2 * time.Minute)
		uid, ok := r.reg.Gone(pod.Namespace, pod.Name)
		why, known := r.reg.Explain(uid)
		if !ok || !known || uid != pod.UID || why.Gone.IsZero() || len(why.Waits) != 0 {
			t.Fatalf("%v %v %+v", ok, known, why)
		}
		story := whats(why.Timeline)
		at := -1
		for _, want := range []string{"seen", "admitted", "container runs", "pod is ready", "not wanted any more", "container ended"} {
			next := slices.Index(story, want)
			if next < 0 || next < at {
				t.Errorf("%q is not where it should be in %q", want, story)
			}
			at = next
		}
		// An action is told when it returns: what it brought may be seen before.
		for _, want := range []string{"make sandbox", "kill container", "stop sandbox", "remove sandbox"} {
			if !slices.Contains(story, want) {
				t.Errorf("nothing tells of %q in %q", want, story)
			}
		}
		time.Sleep(time.Hour)
		if _, ok := r.reg.Gone(pod.Namespace, pod.Name); ok {
			t.Error("it is known for ever")
		}
	})
}

// Of two static pods of one name people can only ask for the one that is to come.
func TestAStaticPodThatIsKeptBackSaysWhatTheEarlierOneWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 20 * time.Second}}}})
		r.reg.Ready("api")
		first, second := newPod("p", v1.Container{Image: "app:1"}), newPod("p", v1.Container{Image: "app:1"})
		second.UID = "uid-second"
		r.reg.Set(first, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(first.UID)) })
		r.reg.Remove(first.UID, "file")
		r.reg.Set(second, "file")
		time.Sleep(5 * time.Second)
		why, _ := r.reg.Explain(second.UID)
		ends := func(w podstate.Wait) bool {
			return strings.Contains(w.Reason, "uid uid-p") && strings.Contains(w.Reason, "asked to end")
		}
		if !slices.ContainsFunc(why.Waits, ends) {
			t.Errorf("it waits for %+v", why.Waits)
		}
		r.until("ready", time.Minute, func() bool { return isReady(r.status(second.UID)) })
		if why, _ := r.reg.Explain(second.UID); len(why.Waits) != 0 {
			t.Errorf("a ready pod waits for %+v", why.Waits)
		}
	})
}
