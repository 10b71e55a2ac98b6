package podsync

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// What was tried for minutes is tried again minutes later, if nobody tells.
func TestAPodThatWaitsForAConfigMapStartsAsSoonAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, api, with := newClusterLives(t, fakecri.Script{Runs: []fakecri.Run{{For: -1}}}, nil)
		l.live(with, func(*Service) {
			time.Sleep(time.Second)
			l.create(api, v1.PodSpec{
				Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}},
			}, v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}})
			time.Sleep(5 * time.Minute)
			if _, err := api.Admin().CoreV1().ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if c := api.Pod("default", "p").Status.ContainerStatuses[0]; c.State.Running == nil {
				t.Errorf("container %+v", c.State)
			}
		})
	})
}
