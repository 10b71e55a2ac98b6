package event

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// A quota of events, or a limit of their rate, is a namespace's own.
func TestEventsOfANamespaceThatTheApiserverDoesNotTakeKeepNoOthersBack(t *testing.T) {
	for name, no := range map[string]error{
		"its quota is full":     apierrors.NewForbidden(v1.Resource("events"), "e", errors.New("exceeded quota")),
		"its rate is too high":  apierrors.NewTooManyRequests("limit of the namespace", 1),
		"nobody knows why not.": errors.New("no"),
	} {
		a := &apiserver{refuse: func(e *v1.Event) error {
			if e.Namespace == "full" {
				return no
			}
			return nil
		}}
		sending(t, a, func(ctx context.Context, s *Sender) {
			for i := range 2 * waiting {
				s.SendPodOnce(ctx, v1.ObjectReference{Kind: "Pod", Namespace: "full", Name: "greedy"}, node.Event{Type: "Warning", Reason: "OOMKilling"}, time.Now(), fmt.Sprint(i))
			}
			time.Sleep(time.Second)
			for i := range 3 {
				s.SendPodOnce(ctx, about("web-0"), node.Event{Type: "Warning", Reason: fmt.Sprint("Mine", i)}, time.Now(), fmt.Sprint(i))
			}
			time.Sleep(time.Second)
			if _, taken := a.got(); !slices.Equal(taken, []string{"Mine0", "Mine1", "Mine2"}) {
				t.Errorf("%s: it got %v", name, taken)
			}
		})
	}
}

func TestOfANamespaceABoundedNumberOfEventsWaitsAndOfAllToo(t *testing.T) {
	p := newOfPods()
	add := func(namespace string) bool {
		e := &v1.Event{}
		e.Namespace = namespace
		return p.add(e) == nil
	}
	for i := range ofNamespace {
		if !add("a") {
			t.Fatalf("the %dth is dropped", i)
		}
	}
	if add("a") || !add("b") {
		t.Error("a namespace has no bound of its own")
	}
	if got := p.begin(); len(got) != 2 || len(p.begin()) != 0 {
		t.Errorf("sending begins for %v", got)
	}
	if p.next("a") == nil || !add("a") || len(p.begin()) != 0 {
		t.Error("there is no room after one was sent, or two send")
	}
	for p.next("a") != nil {
	}
	if p.next("b") == nil || p.next("b") != nil || len(p.waiting) != 0 || p.count != 0 {
		t.Errorf("%d are left: %v", p.count, p.waiting)
	}
	if !add("a") || len(p.begin()) != 1 {
		t.Error("it does not begin anew")
	}
	for i := range 2 * ofAll {
		add(fmt.Sprint(i))
	}
	if p.count != ofAll {
		t.Errorf("%d wait", p.count)
	}
}

func TestATenantWithManyNamespacesTakesNobodyElsesRoom(t *testing.T) {
	p := newOfPods()
	add := func(namespace string) *v1.Event {
		return p.add(&v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}})
	}
	for i := range ofAll {
		if add(fmt.Sprint("tenant-", i/ofNamespace)) != nil {
			t.Fatalf("the %dth has no room", i)
		}
	}
	for i := range ofNamespace - 1 {
		if without := add("other"); without == nil || without.Namespace == "other" {
			t.Fatalf("the %dth of another tenant: without %v", i, without)
		}
	}
	if without := add("tenant-0"); without == nil {
		t.Error("there are more than may be")
	}
	if p.count != ofAll {
		t.Errorf("%d wait", p.count)
	}
	if n := len(p.waiting["other"].events); n != ofNamespace-1 {
		t.Errorf("%d of the other", n)
	}
}
