package podsync

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// A restart of podsync with --cloud-provider=external while the Node object comes a
// little later than the pods: the address of a pod on the host's network stands.
func TestARestartTakesNoAddressOfAPodOnTheHostsNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := false
		l, api, known := newClusterLives(t, fakecri.Script{Runs: []fakecri.Run{{For: -1}}}, func(q fakeapiserver.Request) fakeapiserver.Fault {
			if slow && q.Resource == "nodes" {
				return fakeapiserver.Fault{Delay: 200 * time.Millisecond}
			}
			return fakeapiserver.Fault{}
		})
		with := func(c *Config, d *Deps) {
			known(c, d)
			c.Node.ExternalCloud, d.HostIPs = true, nil
		}
		l.live(with, func(*Service) {
			time.Sleep(time.Second)
			l.create(api, v1.PodSpec{HostNetwork: true}, v1.Container{})
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
