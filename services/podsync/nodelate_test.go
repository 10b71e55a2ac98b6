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

// A restart of podsync with --cloud-provider=external while the Node object comes a
// little later than the pods: the address of a pod on the host's network stands.
func TestARestartTakesNoAddressOfAPodOnTheHostsNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := false
		rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}})
		defer rt.Close()
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if slow && q.Resource == "nodes" {
				return fakeapiserver.Fault{Delay: 200 * time.Millisecond}
			}
			return fakeapiserver.Fault{}
		}})
		defer api.Close()
		if _, err := api.Admin().CoreV1().Nodes().Create(t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		l := &lives{T: t, dir: t.TempDir(), rt: rt}
		with := func(c *Config, d *Deps) {
			c.Node.ExternalCloud, c.StaticPods.Path = true, ""
			d.HostIPs, d.Client = nil, api.Client()
		}
		l.live(with, func(*Service) {
			time.Sleep(time.Second)
			if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
				Spec:       v1.PodSpec{NodeName: "n1", HostNetwork: true, Containers: []v1.Container{{Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent}}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		})
		if ip := api.Pod("default", "p").Status.PodIP; ip != "192.0.2.1" {
			t.Fatalf("podIP %q", ip)
		}
		before := len(api.StatusHistory("default", "p"))
		slow = true
		l.live(with, func(*Service) { time.Sleep(10 * time.Second) })
		for _, w := range api.StatusHistory("default", "p")[before:] {
			if pod, ok := w.New.(*v1.Pod); ok {
				if pod.Status.PodIP == "" {
					t.Error("the address of a pod that runs was taken back")
				}
			}
		}
	})
}
