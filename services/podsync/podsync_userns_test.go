package podsync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Pods of Jobs stay as objects for as long as somebody wants to look at them.
func TestAPodThatHasEndedGivesItsUserNamespaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Images: []string{"job:1", "app:1"}, Scripts: map[string]fakecri.Script{
			"job:1": {Runs: []fakecri.Run{{For: time.Second}}}, "app:1": {Runs: []fakecri.Run{{For: -1}}},
		}})
		api := fakeapiserver.New(fakeapiserver.Config{})
		s := startInCluster(t, rt, api)
		run := func(image string) string {
			t.Helper()
			host := false
			pod, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix(image, ":1"), Namespace: "default"},
				Spec: v1.PodSpec{
					NodeName: "n1", RestartPolicy: v1.RestartPolicyNever, HostUsers: &host,
					Containers: []v1.Container{{Name: "c", Image: image, ImagePullPolicy: v1.PullIfNotPresent}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			return filepath.Join(s.cfg.RootDir, "pods", string(pod.UID), "userns")
		}
		const first = `"hostId":65536,`
		job := run("job:1")
		if data, err := os.ReadFile(job); err != nil || !strings.Contains(string(data), first) {
			t.Errorf("while it runs its ids are %s, %v", data, err)
		}
		time.Sleep(time.Minute)
		if got := api.Pod("default", "job"); got == nil || got.Status.Phase != v1.PodSucceeded {
			t.Fatalf("the job's pod is %v", got)
		}
		if _, err := os.Stat(job); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the note that its ids are taken: %v", err)
		}
		if data, err := os.ReadFile(run("app:1")); err != nil || !strings.Contains(string(data), first) {
			t.Errorf("the next pod's ids are %s, %v; want those of the first", data, err)
		}
	})
}
