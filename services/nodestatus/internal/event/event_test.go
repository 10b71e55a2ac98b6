package event

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// apiserver takes Events, and answers with what refuse says of each attempt.
type apiserver struct {
	client.EventInterface
	refuse func(e *v1.Event) error

	mu    sync.Mutex
	asked int
	taken []string
	names []string // of those
}

// got is how often it was asked, and what it took.
func (a *apiserver) got() (asked int, taken []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked, slices.Clone(a.taken)
}

func (a *apiserver) CreateWithEventNamespaceWithContext(_ context.Context, e *v1.Event) (*v1.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if err := a.refuse(e); err != nil {
		return nil, err
	}
	a.taken, a.names = append(a.taken, e.Reason), append(a.names, e.Name)
	return e, nil
}

// sending runs a Sender to a while do runs.
func sending(t *testing.T, a *apiserver, do func(ctx context.Context, s *Sender)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		s := New("n", a)
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		do(ctx, s)
		cancel()
		<-done
	})
}

// The apiserver may be a static pod of this node, and a whole cluster starts at once.
func TestEventsOfTheStartWaitForAnApiserverThatComesLater(t *testing.T) {
	var there atomic.Bool
	a := &apiserver{refuse: func(*v1.Event) error {
		if there.Load() {
			return nil
		}
		return errors.New("connect: connection refused")
	}}
	sending(t, a, func(ctx context.Context, s *Sender) {
		for _, reason := range []string{"Starting", "CgroupV1", "ConfigurationWithoutEffect"} {
			s.Send(ctx, node.Event{Type: "Normal", Reason: reason})
		}
		time.Sleep(3 * time.Hour)
		if asked, _ := a.got(); asked > 3*80 {
			t.Errorf("asked %d times in three hours", asked)
		}
		for i := range 2 * waiting {
			s.Send(ctx, node.Event{Type: "Normal", Reason: fmt.Sprint(i)})
		}
		there.Store(true)
		time.Sleep(2 * time.Minute)
		_, taken := a.got()
		if want := []string{"Starting", "CgroupV1", "ConfigurationWithoutEffect", "0"}; len(taken) < 4 || !slices.Equal(taken[:4], want) {
			t.Errorf("it got %v", taken)
		}
		if len(taken) > waiting+1 {
			t.Errorf("%d waited", len(taken))
		}
	})
}

func TestAnEventThatTheApiserverRefusesKeepsNoOtherBack(t *testing.T) {
	a := &apiserver{refuse: func(e *v1.Event) error {
		if e.Reason == "Bad" {
			return apierrors.NewForbidden(v1.Resource("events"), e.Name, errors.New("no"))
		}
		return nil
	}}
	sending(t, a, func(ctx context.Context, s *Sender) {
		s.Send(ctx, node.Event{Type: "Normal", Reason: "Bad"})
		s.Send(ctx, node.Event{Type: "Normal", Reason: "Good"})
		time.Sleep(5 * time.Minute)
		if asked, taken := a.got(); !slices.Equal(taken, []string{"Good"}) || asked != attempts+1 {
			t.Errorf("it got %v of %d attempts", taken, asked)
		}
	})
}

func TestAnEventWhoseAnswerWasLostIsSentOnce(t *testing.T) {
	a := &apiserver{refuse: func(e *v1.Event) error { return apierrors.NewAlreadyExists(v1.Resource("events"), e.Name) }}
	sending(t, a, func(ctx context.Context, s *Sender) {
		s.Send(ctx, node.Event{Type: "Normal", Reason: "Starting"})
		time.Sleep(time.Hour)
		if asked, _ := a.got(); asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func about(pod string) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: pod, UID: "u"}
}

// A pod has children die for lack of memory as often as it likes.
func TestEventsAboutPodsKeepNoneAboutTheNodeBack(t *testing.T) {
	a := &apiserver{refuse: func(e *v1.Event) error {
		if e.InvolvedObject.Kind == "Pod" {
			return apierrors.NewForbidden(v1.Resource("events"), e.Name, errors.New("quota"))
		}
		return nil
	}}
	sending(t, a, func(ctx context.Context, s *Sender) {
		for i := range 2 * waiting {
			s.SendPodOnce(ctx, about("web-0"), node.Event{Type: "Warning", Reason: "OOMKilling"}, time.Now(), fmt.Sprint(i))
		}
		s.Send(ctx, node.Event{Type: "Warning", Reason: "EvictionThresholdMet"})
		time.Sleep(time.Second)
		if _, taken := a.got(); !slices.Equal(taken, []string{"EvictionThresholdMet"}) {
			t.Errorf("it got %v", taken)
		}
	})
}

func TestAnEventThatIsRefusedHoweverOftenItIsSentIsSentOnce(t *testing.T) {
	terminating := apierrors.NewForbidden(v1.Resource("events"), "e", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1.NamespaceTerminatingCause})
	for name, refusal := range map[string]error{
		"its namespace ends": terminating, "its namespace has ended": apierrors.NewNotFound(v1.Resource("namespaces"), "shop"),
		"it is none": apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Event").GroupKind(), "e", nil),
	} {
		a := &apiserver{refuse: func(*v1.Event) error { return refusal }}
		sending(t, a, func(ctx context.Context, s *Sender) {
			s.SendPodOnce(ctx, about("web-0"), node.Event{Type: "Warning", Reason: "OOMKilling"}, time.Now(), "1")
			time.Sleep(time.Hour)
			if asked, _ := a.got(); asked != 1 {
				t.Errorf("%s: asked %d times", name, asked)
			}
		})
	}
}

func TestAnEventHasANameThatCanBeHoweverLongThatOfItsPodIs(t *testing.T) {
	long := strings.Repeat("a", 250)
	var names []string
	for range 2 { // A process that was started anew sends it again.
		a := &apiserver{refuse: func(*v1.Event) error { return nil }}
		sending(t, a, func(ctx context.Context, s *Sender) {
			for _, pod := range []string{long, long + "b", "web-0"} {
				s.SendPodOnce(ctx, about(pod), node.Event{Type: "Warning", Reason: "OOMKilling"}, time.Now(), "oom-b00t-1")
			}
			time.Sleep(time.Second)
			a.mu.Lock()
			names = append(names, a.names...)
			a.mu.Unlock()
		})
	}
	if len(names) != 6 || !slices.Equal(names[:3], names[3:]) || names[0] == names[1] || names[2] != "web-0.oom-b00t-1" {
		t.Fatalf("%v", names)
	}
	for _, name := range names {
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			t.Errorf("%q: %v", name, wrong)
		}
	}
}
