package objects

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestWhatARestoreOfEtcdTookBackIsReadAnew(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		services := b.server.Admin().CoreV1().Services("ns")
		service := func(name string) {
			if _, err := services.Create(t.Context(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		b.configMap(t, "settings", "old")
		service("old")
		b.store.Hold(podWith("p", "settings"))
		synctest.Wait()
		backup := b.server.Backup()
		b.configMap(t, "settings", "new")
		service("new")
		synctest.Wait()
		if got := b.value(t, "settings"); got != "new" || len(b.store.services.in("ns")) != 2 {
			t.Fatalf("before the restore it is %q, with %d services", got, len(b.store.services.in("ns")))
		}
		b.server.Restore(backup, false)
		time.Sleep(time.Minute)
		b.store.Restored()
		time.Sleep(time.Second)
		if got := b.value(t, "settings"); got != "old" {
			t.Errorf("after the restore it is %q", got)
		}
		if got := b.store.services.in("ns"); len(got) != 1 || got[0].Name != "old" {
			t.Errorf("after the restore the services are %v", got)
		}
		b.configMap(t, "settings", "later")
		synctest.Wait()
		if got := b.value(t, "settings"); got != "later" {
			t.Errorf("changed after the restore it is %q", got)
		}
	})
}

// An empty list of an object says that it is gone, and a pod's volume would be without it.
func TestWhatIsNoAnswerOfAnApiserverTakesNoObjectAway(t *testing.T) {
	quiet := utilruntime.ErrorHandlers // one of them waits, by the time outside the bubble
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = quiet })
	kinds := append(fakeapiserver.AllNonsense(),
		fakeapiserver.Nonsense{Name: "the end of an object without a name", Body: `{"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1"}}`},
		fakeapiserver.Nonsense{Name: "an object without a name", Body: `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1"}}`})
	for _, kind := range kinds {
		var nonsense atomic.Bool
		faults := func(fakeapiserver.Request) fakeapiserver.Fault {
			if nonsense.Load() {
				return fakeapiserver.Fault{Nonsense: &kind}
			}
			return fakeapiserver.Fault{}
		}
		inBubble(t, fakeapiserver.Config{Faults: faults}, func(t *testing.T, b *bench) {
			b.configMap(t, "kept", "1")
			b.configMap(t, "other", "1")
			b.store.Hold(podWith("pod", "kept"))
			synctest.Wait()
			nonsense.Store(true)
			b.server.Compact()
			b.server.DropWatches()
			time.Sleep(10 * time.Minute)
			if got := b.value(t, "kept"); got != "1" {
				t.Errorf("%s: the ConfigMap of a pod is %q", kind.Name, got)
			}
			if cm, err := b.store.ConfigMap(t.Context(), "ns", "other"); err == nil {
				t.Errorf("%s: a ConfigMap that is read is %v", kind.Name, cm)
			}
			if seen := b.changes(); len(seen) > 0 {
				t.Errorf("%s: changed %v", kind.Name, seen)
			}
			nonsense.Store(false)
			time.Sleep(time.Minute)
			b.configMap(t, "kept", "2")
			synctest.Wait()
			if got := b.value(t, "kept"); got != "2" {
				t.Errorf("%s: afterwards it is %q", kind.Name, got)
			}
		})
	}
}
