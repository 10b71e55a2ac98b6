package objects

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestAReadDoesNotWaitForAnApiserverThatIsAway(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		b.server.Partition(fakeapiserver.Refuse)
		b.store.Hold(podWith("p", "settings"))
		began := time.Now()
		if _, err := b.store.ConfigMap(t.Context(), "ns", "settings"); err == nil || time.Since(began) > time.Second {
			t.Errorf("a read took %v, error %v", time.Since(began), err)
		}
		b.server.Heal()
		b.configMap(t, "settings", "v")
		time.Sleep(time.Minute)
		if _, err := b.store.ConfigMap(t.Context(), "ns", "settings"); err != nil || len(b.changes()) == 0 {
			t.Errorf("it is back: %v; or nobody was told", err)
		}
	})
}

// What the apiserver itself says may pass at once: a node gets its rights on the
// objects of a pod a moment after it gets the pod.
func TestAReadWaitsForAnObjectThatIsForbiddenForAMoment(t *testing.T) {
	var until time.Time
	inBubble(t, fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if time.Now().Before(until) {
			return fakeapiserver.Fault{Status: 403}
		}
		return fakeapiserver.Fault{}
	}}, func(t *testing.T, b *bench) {
		b.configMap(t, "settings", "v")
		until = time.Now().Add(time.Second)
		b.store.Hold(podWith("p", "settings"))
		if _, err := b.store.ConfigMap(t.Context(), "ns", "settings"); err != nil {
			t.Errorf("a read did not wait: %v", err)
		}
	})
}

func TestTheOwnNodeIsGivenAsFarAsItIsKnown(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		b.server.Partition(fakeapiserver.Blackhole)
		began := time.Now()
		if node := b.store.KnownNode(); node != nil || time.Since(began) > 0 {
			t.Errorf("after %v the node is known as %v", time.Since(began), node)
		}
		b.server.Heal()
		if _, err := b.admin.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if node := b.store.KnownNode(); node == nil || node.Name != "n" {
			t.Errorf("the node is known as %v", node)
		}
	})
}
