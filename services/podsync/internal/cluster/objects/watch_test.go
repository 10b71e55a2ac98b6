package objects

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
