package podsync

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Whoever rolls a Deployment out may delete the ConfigMap of the pods before while they
// still serve.
func TestAContainerStartsAgainAfterARestartThoughItsConfigMapIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{
			"app:1": {Runs: []fakecri.Run{{For: 20 * time.Second, Code: 1}, {For: -1}}},
		}})
		defer rt.Close()
		api := fakeapiserver.New(fakeapiserver.Config{})
		defer api.Close()
		admin := api.Admin().CoreV1()
		if _, err := admin.Nodes().Create(t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		l := &lives{T: t, dir: t.TempDir(), rt: rt}
		with := func(c *Config, d *Deps) { c.StaticPods.Path, d.Client = "", api.Client() }
		container := func() v1.ContainerStatus { return api.Pod("default", "p").Status.ContainerStatuses[0] }
		l.live(with, func(*Service) {
			time.Sleep(time.Second)
			if _, err := admin.Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
				Spec: v1.PodSpec{
					NodeName:   "n1",
					Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}},
					Containers: []v1.Container{{Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent, VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
				},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		})
		if c := container(); c.State.Running == nil {
			t.Fatalf("container %+v", c)
		}
		if err := admin.ConfigMaps("default").Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		l.live(with, func(*Service) { time.Sleep(time.Minute) })
		if c := container(); c.RestartCount != 1 || c.State.Running == nil {
			t.Errorf("container %+v", c)
		}
	})
}
