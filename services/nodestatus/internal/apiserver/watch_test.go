package apiserver

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// TestAWatchGoesOnFromWhatThereIsAfterEtcdWasRestored: from a version that was seen before
// that nothing would come, for as long as the watch lasts.
func TestAWatchGoesOnFromWhatThereIsAfterEtcdWasRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		defer api.Close()
		admin := api.Admin().CoreV1().Nodes()
		label := func(value string) *v1.Node {
			there, err := admin.Patch(t.Context(), "n1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"at":%q}}}`, value), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return there
		}
		if _, err := admin.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		backup := api.Backup()
		var last *v1.Node
		for i := range 20 {
			last = label(fmt.Sprint(i))
		}
		nodes := api.Client().CoreV1().Nodes()
		n := Node{Name: "n1", Client: nodes, Heartbeat: nodes, Timeout: 10 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := make(chan *v1.Node, 10), make(chan error, 1)
		go func() { done <- n.Watch(ctx, last.ResourceVersion, func(there *v1.Node) { seen <- there }) }()
		time.Sleep(time.Minute)
		api.Restore(backup, false)
		time.Sleep(10 * time.Second)
		select {
		case there := <-seen:
			if there == nil || there.Labels["at"] != "" {
				t.Errorf("seen %+v", there)
			}
		default:
			t.Error("the Node that is there was not seen")
		}
		label("after")
		time.Sleep(10 * time.Second)
		select {
		case there := <-seen:
			if there == nil || there.Labels["at"] != "after" {
				t.Errorf("seen %+v", there)
			}
		default:
			t.Error("what changed after that was not seen")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
