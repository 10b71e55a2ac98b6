package space_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/space"
)

func start(t *testing.T, lan *instance.Instance, name string, number int) *space.Space {
	t.Helper()
	i := realtest.Instance(t)
	s, err := space.Start(t.Context(), space.Config{
		Instance: i, Name: name, LAN: lan, Number: number, Overlaid: []string{"/etc", "/var/lib"}, Private: []string{"/var/lib/kubelet"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func lan(t *testing.T) *instance.Instance {
	t.Helper()
	realtest.Asked(t, "makes namespaces as root")
	var i *instance.Instance
	t.Cleanup(func() { // After it was removed.
		if _, err := net.InterfaceByName(i.LAN()); err == nil {
			t.Errorf("%s stays behind", i.LAN())
		}
	})
	i = realtest.Instance(t)
	return i
}

func TestWhatASpaceWritesTheMachineDoesNotSee(t *testing.T) {
	s := start(t, lan(t), "n1", 2)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("polylet-space-%d", os.Getpid())
	out, err := s.Shell(t.Context(), `
		hostname
		mkdir -p /etc/`+name+` /var/lib/kubelet/`+name+` /run/`+name+`
		mount -t tmpfs tmpfs /var/lib/kubelet/`+name+`
		ip link add br-test type bridge
		ls -d /etc/`+name+` /var/lib/kubelet/*`)
	if want := "n1\n/etc/" + name + "\n/var/lib/kubelet/" + name + "\n"; err != nil || out != want {
		t.Errorf("inside: %q, %v, want %q", out, err, want)
	}
	for _, path := range []string{"/etc/" + name, "/var/lib/kubelet/" + name, "/run/" + name} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("the machine has %s", path)
		}
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(after), name) || strings.Contains(string(before), name) {
		t.Errorf("the machine has the mount, %v", err)
	}
	if host, err := os.Hostname(); err != nil || host == "n1" {
		t.Errorf("the machine is called %s, %v", host, err)
	}
}

func TestTwoSpacesAndTheMachineReachEachOther(t *testing.T) {
	l := lan(t)
	one, two := start(t, l, "n1", 2), start(t, l, "n2", 3)
	for _, server := range []*space.Space{one, two} {
		listen := filepath.Join(t.TempDir(), "listen.log")
		httpd := process.New(process.Config{
			Name: "httpd", Prefix: server.Prefix(), Path: "/usr/bin/busybox", Args: []string{"httpd", "-f", "-p", server.Address + ":8080", "-h", "/etc"},
			LogFile: listen, Ready: func(ctx context.Context) error {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", server.Address+":8080")
				if err == nil {
					conn.Close()
				}
				return err
			}, ReadyWithin: 20 * time.Second,
		})
		if err := httpd.Start(t.Context()); err != nil {
			t.Fatal("from the machine:", err)
		}
		t.Cleanup(httpd.Stop)
	}
	for from, to := range map[*space.Space]*space.Space{one: two, two: one} {
		out, err := from.Run(t.Context(), "busybox", "wget", "-q", "-O", "-", "http://"+to.Address+":8080/hostname")
		want, _ := to.Run(t.Context(), "hostname")
		if err != nil || out != want {
			t.Errorf("%s reads %q of %s, %v, want %q", from.Address, out, to.Address, err, want)
		}
	}
}
