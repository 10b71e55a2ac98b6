package main

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
)

// ofImages are numbers that images and manifests use, so that any pod may have them.
func ofImages() []string {
	return []string{"0", "1", "33", "65", "99", "100", "101", "999", "1000", "1001", "10001", "65532", "65533", "65534", "65535"}
}

func TestWhereThereAreNoUsersEachServiceTakesAFreeNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the services as others")
	}
	loaded := load(t, "--hostname-override=n1")
	if err := takeUsers(&loaded.Flags, klog.Background()); err != nil {
		t.Fatal(err)
	}
	seen := []string{loaded.Flags.SocketGroup}
	for _, name := range service.Separate() {
		who := loaded.ServiceUser(name)
		if who == "" || slices.Contains(seen, who) || slices.Contains(ofImages(), who) {
			t.Errorf("%s runs as %q beside %q", name, who, seen)
		}
		seen = append(seen, who)
	}
	for _, name := range seen {
		if id, err := strconv.Atoi(name); err == nil && (id < firstFreeID || id > lastFreeID) {
			t.Errorf("%d is not of the range that nobody uses", id)
		}
	}
}

func TestANumberThatSomebodyHasIsNotTaken(t *testing.T) {
	used := func(id int) (bool, error) { return id < firstFreeID+5, nil }
	if id, err := freeID([]int{firstFreeID + 5, firstFreeID + 6}, used); err != nil || id != firstFreeID+7 {
		t.Errorf("%d, %v", id, err)
	}
	if _, err := freeID(nil, func(int) (bool, error) { return true, nil }); err == nil {
		t.Error("a number is taken though all are used")
	} else {
		has(t, err.Error(), "useradd --system")
	}
	if _, err := freeID(nil, func(int) (bool, error) { return false, errors.New("no database") }); err == nil {
		t.Error("a number is taken though nobody knows whose it is")
	}
	if inUse, err := idIsUsed(0); err != nil || !inUse {
		t.Errorf("root's: %v, %v", inUse, err)
	}
}

func TestTwoNamesOfOneNumberAreRefused(t *testing.T) {
	who := map[string]supervise.Identity{"gateway": {Drop: true, UID: 7}, "probes": {Drop: true, UID: 8}, "stats": {}, "nodestatus": {Drop: true, UID: 7}}
	if err := differentUsers(who); err == nil {
		t.Error("gateway and nodestatus share a number")
	} else {
		has(t, err.Error(), "--gateway-user and --nodestatus-user have the same number 7")
	}
	delete(who, "nodestatus")
	if err := differentUsers(who); err != nil {
		t.Error(err)
	}
}

func TestNobodySharesTheGroupThatReadsTheGatewaysKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		gateway, probes supervise.Identity
		want            string
	}{
		"one each":              {supervise.Identity{Drop: true, UID: 1, GID: 1}, supervise.Identity{Drop: true, UID: 2, GID: 2}, ""},
		"no group for each":     {supervise.Identity{Drop: true, UID: 1, GID: 100}, supervise.Identity{Drop: true, UID: 2, GID: 100}, "same first group 100"},
		"the group of sockets":  {supervise.Identity{Drop: true, UID: 1, GID: 9}, supervise.Identity{Drop: true, UID: 2, GID: 2}, "that of the sockets (9)"},
		"all as this process":   {supervise.Identity{}, supervise.Identity{}, ""},
		"probes as root (zero)": {supervise.Identity{Drop: true, UID: 1, GID: 1}, supervise.Identity{GID: 1}, ""},
	} {
		err := ownGroup(map[string]supervise.Identity{"gateway": tc.gateway, "probes": tc.probes}, 9)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyWhatReadsTheHostKeepsACapability(t *testing.T) {
	loaded := load(t, "--hostname-override=n1", "--gateway-user=60901", "--probes-user=60902", "--stats-user=60903", "--nodestatus-user=60904")
	for service, want := range map[string][]int{
		"gateway": nil, "probes": nil, "nodestatus": {unix.CAP_DAC_READ_SEARCH}, "stats": {unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE},
	} {
		if identity, err := identityOf(loaded, service, -1); err != nil || !slices.Equal(identity.Capabilities, want) {
			t.Errorf("%s: %v, %v", service, identity.Capabilities, err)
		}
	}
}

func TestWhoReachesTheApiserverIsToldHow(t *testing.T) {
	loaded := load(t, "--hostname-override=n1", "--gateway-user=60901", "--probes-user=60902", "--stats-user=60903", "--nodestatus-user=60904")
	for service, told := range map[string]bool{"gateway": true, "nodestatus": true, "probes": false, "stats": false} {
		identity, err := identityOf(loaded, service, -1)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"HTTPS_PROXY", "SSL_CERT_DIR", "DISABLE_HTTP2", "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
			if slices.Contains(identity.Environment, name) != told {
				t.Errorf("%s has %s: %v", service, name, !told)
			}
		}
	}
}

func TestAPersonSpeaksToNoStrangersServer(t *testing.T) {
	for uid, want := range map[uint32]bool{firstFreeID: true, lastFreeID: true, lastFreeID + 1: false, 1000: false, 65532: false, 65534: false} {
		if got := mayServe("podsync", uid); got != want {
			t.Errorf("uid %d: %v, want %v", uid, got, want)
		}
	}
}
