package podsync

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// A pod that does not match the node in memory waits for a read of the newest
// one, and asks again whenever it is woken.
func TestAnApiserverThatRefusesTheNodeIsNotAskedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		refuses := func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb != "get" || q.Resource != "nodes" {
				return fakeapiserver.Fault{}
			}
			if reads.Add(1) > 1000 {
				t.Error("the node was read more than 1000 times")
				return fakeapiserver.Fault{}
			}
			return fakeapiserver.Fault{Status: http.StatusForbidden}
		}
		api := fakeapiserver.New(fakeapiserver.Config{Faults: refuses})
		startInCluster(t, fakecri.New(fakecri.Config{Images: []string{"app:1"}}), api)
		for _, name := range []string{"a", "b", "c"} {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
				Spec:       v1.PodSpec{NodeName: "n1", NodeSelector: map[string]string{"disk": "fast"}, Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
			}
			if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := reads.Load(); n < 3 || n > 12 {
			t.Errorf("the node was read %d times in 10 s; with a pause that grows from 0.1 s it is 5 to 8", n)
		}
	})
}
