package podsync

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestAPodShowsTheAddressesThatTheNodeHasNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}})
		api := fakeapiserver.New(fakeapiserver.Config{})
		startInClusterWith(t, rt, api, func(c *Config, d *Deps) {
			c.Node.ExternalCloud = true // the object has the addresses
			d.HostIPs = nil
		}, func(*Service) {})
		show := func(ips ...string) {
			t.Helper()
			node, err := api.Admin().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}}
			for _, ip := range ips {
				node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
			}
			if _, err := api.Admin().CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		hostIPs := func(name string) (out []string) {
			for _, ip := range api.Pod("default", name).Status.HostIPs {
				out = append(out, ip.IP)
			}
			return out
		}
		show("192.0.2.1")
		for _, pod := range []string{"before", "after"} {
			_, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "default"},
				Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent}}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if pod == "before" {
				if got := hostIPs("before"); !slices.Equal(got, []string{"192.0.2.1"}) {
					t.Errorf("at first the host's addresses are %v", got)
				}
				show("192.0.2.7", "192.0.2.8", "2001:db8::7", "2001:db8::8") // a pod can show one of each family
			}
		}
		for _, pod := range []string{"before", "after"} {
			if got := hostIPs(pod); !slices.Equal(got, []string{"192.0.2.7", "2001:db8::7"}) {
				t.Errorf("pod %s shows %v", pod, got)
			}
		}
	})
}
