package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/apiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/event"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/peer"
)

func version(v string, unschedulable bool) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: v}, Spec: v1.NodeSpec{Unschedulable: unschedulable}}
}

// keeping is a Keeper that has the Node at version 5.
func keeping() (*Keeper, *event.Sender) {
	events := event.New("n1", nil)
	k := New(Config{Node: node.Config{Name: "n1"}, ReportFrequency: time.Minute}, Deps{Store: peer.NewStore(node.Host{}), Events: events, Health: health.Discard()})
	k.node = version("5", false)
	k.publish(func(v *View) { v.Node, v.Registered = k.node, true })
	return k, events
}

func TestAnOlderNodeThatTheWatchTellsLateChangesNothing(t *testing.T) {
	for there, taken := range map[string]bool{"4": false, "5": false, "6": true, "10": true} {
		k, events := keeping()
		k.take(t.Context(), version(there, true))
		if got := k.View().Node.ResourceVersion == there && k.node.Spec.Unschedulable; got != taken {
			t.Errorf("version %s is taken: %t", there, got)
		}
		if n := len(events.Recent()); (n == 1) != taken {
			t.Errorf("version %s: %d events", there, n)
		}
	}
}

// TestANodeThatWentBackWithEtcdIsTakenAtOnce: until the next report, minutes later, the
// node would else go by what is no more.
func TestANodeThatWentBackWithEtcdIsTakenAtOnce(t *testing.T) {
	for name, restored := range map[string]bool{"restored": true, "the watch is late": false} {
		synctest.Test(t, func(t *testing.T) {
			api := fakeapiserver.New(fakeapiserver.Config{})
			defer api.Close()
			nodes := api.Client().CoreV1().Nodes()
			k, _ := keeping()
			k.deps.API = &apiserver.Node{Name: "n1", Client: nodes, Heartbeat: nodes, Timeout: time.Second}
			before, err := nodes.Create(t.Context(), version("", false), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			backup := api.Backup()
			changed := before.DeepCopy()
			changed.Spec.Unschedulable = true
			if k.node, err = nodes.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if restored {
				api.Restore(backup, false)
			}
			k.take(t.Context(), before)
			if got := k.node.ResourceVersion == before.ResourceVersion && !k.node.Spec.Unschedulable; got != restored {
				t.Errorf("%s: the older Node is taken: %t", name, got)
			}
		})
	}
}

func TestADeletedNodeIsNotRegisteredAndItsUIDStays(t *testing.T) {
	k, _ := keeping()
	k.take(t.Context(), nil)
	if v := k.View(); v.Registered || !strings.Contains(v.LastError, "deleted") || k.UID() != "u" {
		t.Errorf("%+v", v)
	}
}

func TestBeforeTheFirstNodeNothingIsKnownOfIt(t *testing.T) {
	k := New(Config{}, Deps{})
	if k.UID() != "" || k.Addresses() != nil || k.View().Node != nil {
		t.Errorf("%+v", k.View())
	}
}

// Nodes that changed at one moment would else report at one moment ever after.
func TestTheReportAfterAChangeComesAtATimeOfItsOwn(t *testing.T) {
	k, _ := keeping()
	now := time.Unix(1000, 0)
	times := map[time.Time]bool{}
	for range 20 {
		k.accept(t.Context(), version("6", false), nil, now, true)
		if after := k.reportAt.Sub(now); after < 30*time.Second || after > 90*time.Second {
			t.Errorf("%s after the change, with a frequency of a minute", after)
		}
		times[k.reportAt] = true
	}
	if len(times) < 2 {
		t.Error("always the same time")
	}
	if k.accept(t.Context(), version("6", false), nil, now, false); !k.reportAt.Equal(now.Add(time.Minute)) {
		t.Errorf("%s after a report without a change", k.reportAt.Sub(now))
	}
}
