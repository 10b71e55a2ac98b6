package growth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster with a claim and its volume, and a driver.
type world struct {
	*Volumes
	mu      sync.Mutex
	version int
	claim   *v1.PersistentVolumeClaim
	pv      *v1.PersistentVolume
	reads   int
	// refuse is what the next write ends with.
	refuse error
	events []string
	// fails is what the driver ends with; asked are the sizes that it was asked for.
	fails error
	asked []string
}

func (w *world) Claim(context.Context, types.UID, string, string) (*v1.PersistentVolumeClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	return w.claim.DeepCopy(), nil
}

func (w *world) PersistentVolume(context.Context, types.UID, string, string) (*v1.PersistentVolume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pv.DeepCopy(), nil
}

func (w *world) Write(_ context.Context, was, is *v1.PersistentVolumeClaim, only bool) (*v1.PersistentVolumeClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refuse; err != nil {
		w.refuse = nil
		return was, err
	}
	if only && was.ResourceVersion != w.claim.ResourceVersion {
		return was, errors.New("conflict")
	}
	w.claim.Status = *is.Status.DeepCopy()
	w.bumpLocked()
	return w.claim.DeepCopy(), nil
}

func (w *world) Event(object, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, object+" "+reason+": "+message)
}

func (w *world) bumpLocked() {
	w.version++
	w.claim.ResourceVersion = fmt.Sprint(w.version)
}

// change changes the claim or its volume.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.bumpLocked()
}

// recorder is where the world's events go.
type recorder struct{ *world }

func (r recorder) Pod(pod *v1.Pod, eventType, reason, message string) {
	r.Event(pod.Name+" "+eventType, reason, message)
}

func (r recorder) Claim(claim *v1.PersistentVolumeClaim, eventType, reason, message string) {
	r.Event(claim.Name+" "+eventType, reason, message)
}

func size(s string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)}
}

// newWorld has a claim of 1Gi.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv", Resources: v1.VolumeResourceRequirements{Requests: size("1Gi")}},
			Status:     v1.PersistentVolumeClaimStatus{Capacity: size("1Gi")},
		},
		pv: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{Capacity: size("1Gi")}},
	}
	w.change(func() {})
	w.Volumes = New(Config{}, Deps{Claims: w, Status: w, Events: recorder{w}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// larger has the controller make the volume larger.
func (w *world) larger(to string, status v1.ClaimResourceStatus) {
	w.change(func() {
		w.claim.Spec.Resources.Requests, w.pv.Spec.Capacity = size(to), size(to)
		w.claim.Status.AllocatedResources = size(to)
		w.claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status}
	})
}

func (w *world) volume(name string) Volume {
	return Volume{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}, Spec: v1.PodSpec{NodeName: "n1"}}, Claim: "c",
		Grow: func(_ context.Context, to resource.Quantity) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, name+" "+to.String())
			return w.fails
		},
	}
}

// mount has a pod mount the volume.
func (w *world) mount(name string) error {
	v := w.volume(name)
	w.mu.Lock()
	claim, pv := w.claim.DeepCopy(), w.pv.DeepCopy()
	w.mu.Unlock()
	return w.AtMount(context.Background(), v, claim, pv)
}

// state is how the claim stands.
func (w *world) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.claim.Status
	text := s.Capacity.Storage().String()
	if status := s.AllocatedResourceStatuses[v1.ResourceStorage]; status != "" {
		text += " " + string(status)
	}
	for _, c := range s.Conditions {
		text += " " + string(c.Type)
	}
	return text
}

func (w *world) did() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *world) timesRead() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) set(fails error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = fails
}

func (w *world) want(t *testing.T, state string, asked ...string) {
	t.Helper()
	if got := w.state(); got != state {
		t.Errorf("the claim is %q, want %q", got, state)
	}
	if got := w.did(); !slices.Equal(got, asked) {
		t.Errorf("the driver was asked for %q, want %q", got, asked)
	}
}

const (
	pending    = v1.PersistentVolumeClaimNodeResizePending
	infeasible = v1.PersistentVolumeClaimNodeResizeInfeasible
	succeeded  = `FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" n1`
)

func TestAVolumeGrowsBeforeItsPodUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.larger("2Gi", pending)
		w.set(errors.New("no"))
		if err := w.mount("p"); err == nil || err.Error() != "no" {
			t.Fatal(err)
		}
		w.want(t, "1Gi NodeResizeInProgress NodeResizeError", "p 2Gi")
		w.set(nil)
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		w.want(t, "2Gi", "p 2Gi", "p 2Gi")
		if want := []string{"p Normal " + succeeded, "c Normal " + succeeded}; !slices.Equal(w.told(), want) {
			t.Errorf("events %q", w.told())
		}
	})
}

func TestAVolumeGrowsWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		w.larger("2Gi", pending)
		time.Sleep(91 * time.Second)
		w.want(t, "2Gi", "p 2Gi")
		if err := w.mount("second"); err != nil {
			t.Fatal(err)
		}
		w.Leave("p")
		w.larger("3Gi", pending)
		time.Sleep(91 * time.Second)
		w.want(t, "3Gi", "p 2Gi", "second 3Gi")
		w.Leave("second")
		synctest.Wait()
		before := w.timesRead()
		w.larger("4Gi", pending)
		time.Sleep(time.Hour)
		if w.timesRead() != before {
			t.Error("the claim is read although nobody uses it")
		}
	})
}

func TestAClaimIsReadSeldomUnlessItIsAboutToChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := w.timesRead(); n < 40 || n > 60 {
			t.Errorf("it was read %d times within an hour", n)
		}
		w.Leave("p")
		w.change(func() { w.claim.Spec.Resources.Requests = size("2Gi") })
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		w.larger("2Gi", pending)
		time.Sleep(12 * time.Second)
		w.want(t, "2Gi", "p 2Gi")
		w.change(func() { w.claim.Spec.Resources.Requests = size("9Gi") }) // and will never have that
		before := w.timesRead()
		time.Sleep(time.Hour)
		if got := w.timesRead() - before; got < 50 || got > 80 {
			t.Errorf("it was read %d times within an hour", got)
		}
	})
}

func TestWhatIsInfeasibleIsSaidAndNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		w.set(&Error{Infeasible, errors.New("too large")})
		w.larger("2Gi", pending)
		time.Sleep(time.Hour)
		w.want(t, "1Gi "+string(infeasible)+" NodeResizeError", "p 2Gi")
		if want := []string{`p Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv" : too large`}; !slices.Equal(w.told(), want) {
			t.Errorf("events %q", w.told())
		}
		if err := w.mount("other"); err != nil { // and keeps no pod from starting
			t.Error(err)
		}
		w.set(nil)
		w.larger("1500Mi", pending)
		time.Sleep(2 * time.Minute)
		if did := w.did(); w.state() != "1500Mi" || len(did) != 2 || !strings.HasSuffix(did[1], " 1500Mi") { // whichever pod's
			t.Errorf("the claim is %q, asked for %q", w.state(), did)
		}
	})
}

func TestWhatFailsIsLetGoOnceTheClaimWantsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.larger("2Gi", pending)
		w.set(errors.New("no"))
		if err := w.mount("p"); err == nil {
			t.Fatal("it has grown")
		}
		w.change(func() { w.claim.Spec.Resources.Requests = size("1500Mi") })
		if err := w.mount("p"); err == nil {
			t.Fatal("it has grown")
		}
		w.want(t, "1Gi "+string(infeasible)+" NodeResizeError", "p 2Gi", "p 2Gi")
	})
}

func TestADriverThatIsAwayLeavesTheClaimAsItIs(t *testing.T) {
	for kind, want := range map[Kind]string{Away: "1Gi NodeResizeInProgress", Uncertain: "1Gi NodeResizeInProgress NodeResizeError"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.larger("2Gi", pending)
			w.set(&Error{kind, errors.New("away")})
			for range 2 {
				if err := w.mount("p"); err == nil {
					t.Fatal("it has grown")
				}
				w.want(t, want, w.did()...)
				w.change(func() { w.claim.Spec.Resources.Requests = size("1500Mi") }) // may be growing all the same
			}
		})
	}
}

func TestADriverThatDoesNotGrowWhatIsUsedKeepsNoPodFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.larger("2Gi", pending)
		w.set(&Error{InUse, errors.New("busy")})
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.want(t, "1Gi NodeResizeInProgress NodeResizeError", "p 2Gi")
		w.Leave("p")
		w.set(nil)
		if err := w.mount("next"); err != nil {
			t.Fatal(err)
		}
		w.want(t, "2Gi", "p 2Gi", "next 2Gi")
	})
}

func TestAnOldControllersClaimGrowsToo(t *testing.T) {
	for _, fails := range []error{nil, &Error{Unsupported, errors.New("not supported")}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if err := w.mount("p"); err != nil {
				t.Fatal(err)
			}
			w.set(fails)
			w.change(func() {
				w.claim.Spec.Resources.Requests, w.pv.Spec.Capacity = size("2Gi"), size("2Gi")
				w.claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
			})
			time.Sleep(time.Hour)
			if fails == nil {
				w.want(t, "2Gi", "p 2Gi")
			} else {
				w.want(t, "1Gi FileSystemResizePending", "p 2Gi")
			}
		})
	}
}

func TestAClaimThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		w.larger("2Gi", v1.PersistentVolumeClaimNodeResizeInProgress)
		w.mu.Lock()
		w.refuse = errors.New("conflict")
		w.mu.Unlock()
		time.Sleep(2 * time.Minute)
		w.want(t, "2Gi", "p 2Gi")
	})
}

func TestAPodThatOnlyReadsGrowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.larger("2Gi", pending)
		v := w.volume("p")
		v.ReadOnly = true
		if err := w.AtMount(t.Context(), v, w.claim.DeepCopy(), w.pv); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.want(t, "1Gi NodeResizePending")
		if want := `p Warning FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file system`; len(w.told()) != 2 || w.told()[0] != want {
			t.Errorf("events %q", w.told())
		}
	})
}

func TestAnotherClaimOfTheNameSaysNothingOfTheVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.mount("p"); err != nil {
			t.Fatal(err)
		}
		w.change(func() { w.claim.Spec.VolumeName, w.pv.Name = "another", "another" })
		w.larger("2Gi", pending)
		time.Sleep(time.Hour)
		w.want(t, "1Gi NodeResizePending")
	})
}

// TestAPodThatKnowsAnOlderClaimHasNothingGrownAgain: it may have waited for another's pod, after
// which the claim would say for ever that what was done could not be.
func TestAPodThatKnowsAnOlderClaimHasNothingGrownAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.larger("2Gi", v1.PersistentVolumeClaimNodeResizePending)
		w.mu.Lock()
		older, pv := w.claim.DeepCopy(), w.pv.DeepCopy()
		w.mu.Unlock()
		if err := w.mount("a"); err != nil {
			t.Fatal(err)
		}
		w.want(t, "2Gi", "a 2Gi")
		w.set(errors.New("connection refused"))
		if err := w.AtMount(t.Context(), w.volume("b"), older, pv); err != nil {
			t.Error(err)
		}
		w.want(t, "2Gi", "a 2Gi")
	})
}
