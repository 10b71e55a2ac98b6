package podsync

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// A backup of etcd is restored from before the pods ran: what the watch brings then is
// older than what was written, of a pod and of a static pod's mirror.
func TestStatusesThatARestoreTookBackAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		manifests := t.TempDir()
		startInClusterWith(t, fakecri.New(fakecri.Config{Registry: map[string]fakecri.RemoteImage{"app:1": {PullDelay: time.Minute}, "registry.local/hello:1": {PullDelay: time.Minute}}}), api,
			func(c *Config, _ *Deps) { c.StaticPods.Path = manifests }, func(*Service) {})
		if err := os.WriteFile(filepath.Join(manifests, "hello.yaml"), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
			Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		backup := api.Backup()
		phases := func() (out []v1.PodPhase) {
			for _, pod := range api.Pods() {
				out = append(out, pod.Status.Phase)
			}
			return out
		}
		if got := phases(); len(got) != 2 || got[0] != v1.PodPending || got[1] != v1.PodPending {
			t.Fatalf("before they run the pods are %v", got)
		}
		time.Sleep(5 * time.Minute)
		if got := phases(); len(got) != 2 || got[0] != v1.PodRunning || got[1] != v1.PodRunning {
			t.Fatalf("the pods are %v", got)
		}
		api.Restore(backup, true)
		before := api.Calls()["patch pods/status"]
		if got := phases(); len(got) != 2 || got[0] != v1.PodPending || got[1] != v1.PodPending {
			t.Fatalf("after the restore the pods are %v", got)
		}
		time.Sleep(10 * time.Second) // the watches come back
		if got := phases(); len(got) != 2 || got[0] != v1.PodRunning || got[1] != v1.PodRunning {
			t.Errorf("10 s after the restore the pods are %v", got)
		}
		// An answer and the watch's older news of the same pod may cross: once more, then.
		time.Sleep(time.Minute)
		early := api.Calls()["patch pods/status"] - before
		if early < 2 || early > 4 {
			t.Errorf("%d requests after the restore, want one or two for each pod", early)
		}
		time.Sleep(time.Hour)
		if n := api.Calls()["patch pods/status"] - before - early; n != 0 {
			t.Errorf("%d more requests within the next hour", n)
		}
	})
}
