package podsync

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Whoever rolls a Deployment out may delete the ConfigMap of the pods before while they
// still serve.
func TestAContainerStartsAgainAfterARestartThoughItsConfigMapIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, api, with := newClusterLives(t, fakecri.Script{Runs: []fakecri.Run{{For: 20 * time.Second, Code: 1}, {For: -1}}}, nil)
		configMaps := api.Admin().CoreV1().ConfigMaps("default")
		if _, err := configMaps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		container := func() v1.ContainerStatus { return api.Pod("default", "p").Status.ContainerStatuses[0] }
		l.live(with, func(*Service) {
			time.Sleep(time.Second)
			l.create(api, v1.PodSpec{
				Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}},
			}, v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}})
			time.Sleep(5 * time.Second)
		})
		if c := container(); c.State.Running == nil {
			t.Fatalf("container %+v", c)
		}
		if err := configMaps.Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		l.live(with, func(*Service) { time.Sleep(time.Minute) })
		if c := container(); c.RestartCount != 1 || c.State.Running == nil {
			t.Errorf("container %+v", c)
		}
	})
}
