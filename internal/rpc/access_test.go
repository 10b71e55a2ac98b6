package rpc

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

func TestACallIsBoundToWhoeverIsNamed(t *testing.T) {
	users := Users{"gateway": 60801, "probes": 60802, "stats": 60803}
	const inPod = "0::/kubepods/pod1/c"
	for name, tc := range map[string]struct {
		access Access
		caller uds.Peer
		ok     bool
	}{
		"root":                          {Access{}, uds.Peer{}, true},
		"root in a pod":                 {Access{People: true}, uds.Peer{Pod: inPod}, false},
		"the service":                   {Access{Services: []string{"gateway"}}, uds.Peer{UID: 60801}, true},
		"its number in a pod":           {Access{Services: []string{"gateway"}}, uds.Peer{UID: 60801, Pod: inPod}, false},
		"another service":               {Access{Services: []string{"gateway"}}, uds.Peer{UID: 60802}, false},
		"a service among people's RPCs": {Access{People: true}, uds.Peer{UID: 60802}, false},
		"a member of the group":         {Access{People: true}, uds.Peer{UID: 1000}, true},
		"a member where none is named":  {Access{Services: []string{"gateway"}}, uds.Peer{UID: 1000}, false},
		"a member of the group's pod":   {Access{People: true}, uds.Peer{UID: 1000, Pod: inPod}, false},
		"nobody is named":               {Access{}, uds.Peer{UID: 60801}, false},
	} {
		if got := tc.access.allows(users, tc.caller); got != tc.ok {
			t.Errorf("%s: %v, want %v", name, got, tc.ok)
		}
	}
	err := Access{Services: []string{"gateway"}}.refusal(users, "/x/Y", uds.Peer{UID: 60802})
	for _, want := range []string{"/x/Y may be called by root, gateway", "uid 60802, the user of probes"} {
		if !errors.Is(err, rpcerr.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("unclear refusal, without %q: %v", want, err)
		}
	}
	if err := (Access{}).refusal(users, "/x/Y", uds.Peer{Pod: inPod}); !errors.Is(err, rpcerr.ErrForbidden) || !strings.Contains(err.Error(), inPod) {
		t.Errorf("unclear refusal of a pod: %v", err)
	}
	p := &policy{cfg: ServerConfig{Log: logr.Discard(), Access: map[string]Access{"/x/Y": {People: true}}}, peerOf: uds.PeerFrom}
	if err := p.admit(t.Context(), "/x/Y"); !errors.Is(err, rpcerr.ErrForbidden) {
		t.Errorf("an unknown caller is let in: %v", err)
	}
}

func TestAMethodThatNobodyWasNamedForIsFound(t *testing.T) {
	server := grpc.NewServer()
	healthgrpc.RegisterHealthServer(server, echo{})
	access := map[string]Access{healthgrpc.Health_Check_FullMethodName: {}, healthgrpc.Health_List_FullMethodName: {}}
	err := CheckAccess(server, access)
	if err == nil || !strings.Contains(err.Error(), "/grpc.health.v1.Health/Watch has no entry") {
		t.Errorf("err = %v", err)
	}
	access[healthgrpc.Health_Watch_FullMethodName] = Access{}
	if err := CheckAccess(server, access); err != nil {
		t.Errorf("all have one: %v", err)
	}
	access["/x/Y"] = Access{}
	if err := CheckAccess(server, access); err == nil || !strings.Contains(err.Error(), "/x/Y is not served") {
		t.Errorf("err = %v", err)
	}
}

func TestUsersAreNamesOrNumbers(t *testing.T) {
	users, missing := LookupUsers(map[string]string{"podsync": "root", "gateway": "60801", "probes": "", "stats": "no-such-user-here"})
	if len(users) != 1 || users["gateway"] != 60801 {
		t.Fatalf("users %v", users)
	}
	if len(missing) != 1 || missing[0] != "no-such-user-here" {
		t.Fatalf("missing %v", missing)
	}
}
