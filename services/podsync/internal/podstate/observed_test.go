package podstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestWhatAContainersStateSays(t *testing.T) {
	type says struct{ live, created, cutShort, ended, ran bool }
	started := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		container *Container
		want      says
	}{
		"none":                        {},
		"created":                     {&Container{State: StateCreated}, says{created: true}},
		"its start was cut short":     {&Container{State: StateCreated, Reason: "StartError"}, says{created: true, cutShort: true}},
		"runs":                        {&Container{State: StateRunning, StartedAt: started}, says{live: true, ran: true}},
		"nobody knows":                {&Container{State: StateUnknown}, says{live: true}},
		"ended":                       {&Container{State: StateExited, StartedAt: started}, says{ended: true, ran: true}},
		"ended before it came to run": {&Container{State: StateExited}, says{ended: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.container
			if got := (says{c.Live(), c.Created(), c.CutShort(), c.Ended(), c.Ran()}); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestASandboxIsUpWhenItHasAnAddressOrIsOnTheHostsNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		sandbox *Sandbox
		want    bool
	}{
		"none":               {},
		"no address yet":     {&Sandbox{Ready: true}, false},
		"an address":         {&Sandbox{Ready: true, IPs: []string{"10.0.0.1"}}, true},
		"the host's network": {&Sandbox{Ready: true, HostNetwork: true}, true},
		"not ready":          {&Sandbox{IPs: []string{"10.0.0.1"}, HostNetwork: true}, false},
	} {
		if got := tc.sandbox.Up(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatIsFoundByItsIDIsTheOneThatIsHeld(t *testing.T) {
	o := &Observed{Containers: []Container{{ID: "a"}, {ID: "b"}}, Sandboxes: []Sandbox{{ID: "a"}, {ID: "s"}}}
	if o.Container("b") != &o.Containers[1] || o.Sandbox("s") != &o.Sandboxes[1] {
		t.Error("another is found")
	}
	if o.Container("s") != nil || o.Sandbox("b") != nil {
		t.Error("a container is found by a sandbox's ID, or the other way round")
	}
}

func TestAContainerThatCarriesNoHashHasNotChanged(t *testing.T) {
	spec := &v1.Container{Name: "c", Image: "app:2"}
	for hash, want := range map[string]bool{
		"":                                     false,
		podutil.Hash(spec):                     false,
		podutil.Hash(&v1.Container{Name: "c"}): true,
	} {
		if got := (&Container{SpecHash: hash}).ImageChanged(spec); got != want {
			t.Errorf("hash %q: changed is %t", hash, got)
		}
	}
}
