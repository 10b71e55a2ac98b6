package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

var (
	near = net.HardwareAddr{0x02, 0, 0, 0, 0, 1} // the node's
	far  = net.HardwareAddr{0x02, 0, 0, 0, 0, 2} // the neighbour's
)

// ownNetwork gives the test's thread a network of its own: a node (10.9.9.1) that
// routes to its loopback network, and a cable to a neighbour (10.9.9.9). The
// thread ends with the test, and the network with it.
func ownNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread() // for good
	// One processor: frames that were sent by two could overtake each other.
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	for _, args := range []string{
		"link set lo up",
		"link add near address " + near.String() + " type veth peer name far address " + far.String(),
		"addr add 10.9.9.1/24 dev near", "link set near up", "link set far up",
		"neigh add 10.9.9.9 lladdr " + far.String() + " dev near nud permanent",
	} {
		tool(t, "ip", strings.Fields(args)...)
	}
	for file, value := range map[string]string{"route_localnet": "1", "rp_filter": "0"} {
		for _, dev := range []string{"all", "near"} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", dev, file), []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func tool(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// neighbour is the far end of the cable.
type neighbour struct {
	fd, index int
	next      uint16 // source port
}

// newNeighbour is there when the node's own address has answered it at port: until the
// kernel has heard that the link is up it drops what the node sends.
func newNeighbour(t *testing.T, port uint16) *neighbour {
	t.Helper()
	link, err := net.InterfaceByName("far")
	if err != nil {
		t.Fatal(err)
	}
	proto := uint16(unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: link.Index}); err != nil {
		t.Fatal(err)
	}
	n := &neighbour{fd: fd, index: link.Index, next: 40000}
	n.waits(t, unix.Timeval{Usec: 100_000})
	eventually.True(t, "the node's own address does not answer", func() bool {
		n.next++
		n.send(t, syn(own, n.next, port))
		for {
			to, ok, err := n.receive()
			if err != nil || ok && to == n.next {
				return err == nil
			}
		}
	})
	n.waits(t, unix.Timeval{Sec: 30})
	return n
}

// own is the node's own address.
var own = net.IPv4(10, 9, 9, 1)

// waits says for how long an answer is waited for.
func (n *neighbour) waits(t *testing.T, d unix.Timeval) {
	t.Helper()
	if err := unix.SetsockoptTimeval(n.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &d); err != nil {
		t.Fatal(err)
	}
}

// receive is to which port the next frame answers; ok is false when it does not answer us.
func (n *neighbour) receive() (to uint16, ok bool, err error) {
	f := make([]byte, 2000)
	size, _, err := unix.Recvfrom(n.fd, f, 0)
	if errors.Is(err, unix.EINTR) {
		return 0, false, nil
	}
	if err != nil || size < 14+20+20 || f[14+9] != unix.IPPROTO_TCP || f[14+20+13]&0x12 != 0x12 || string(f[:6]) != string(far) {
		return 0, false, err
	}
	return binary.BigEndian.Uint16(f[14+20+2:]), true, nil
}

// reaches says whether a connection to to:port is answered. The node's own
// address is asked behind it: when that has answered, the other would have.
func (n *neighbour) reaches(t *testing.T, to net.IP, port uint16) bool {
	t.Helper()
	n.next += 2
	n.send(t, syn(to, n.next, port))
	n.send(t, syn(own, n.next+1, port))
	answered := false
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		switch from, ok, err := n.receive(); {
		case err != nil:
			t.Fatalf("the node's own address does not answer either: %v", err)
		case ok && from == n.next:
			answered = true
		case ok && from == n.next+1:
			return answered
		}
	}
	t.Fatal("the node's own address does not answer either")
	return false
}

func (n *neighbour) send(t *testing.T, frame []byte) {
	t.Helper()
	to := &unix.SockaddrLinklayer{Ifindex: n.index, Halen: 6}
	copy(to.Addr[:], near)
	if err := unix.Sendto(n.fd, frame, 0, to); err != nil {
		t.Fatal(err)
	}
}

// syn is a frame that asks for a connection.
func syn(to net.IP, from, port uint16) []byte {
	f := append(append(append([]byte{}, near...), far...), 8, 0)
	ip := make([]byte, 20)
	ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	copy(ip[12:], net.IPv4(10, 9, 9, 9).To4())
	copy(ip[16:], to.To4())
	binary.BigEndian.PutUint16(ip[10:], sum(ip))
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp[0:], from)
	binary.BigEndian.PutUint16(tcp[2:], port)
	tcp[12], tcp[13], tcp[14] = 0x50, 0x02, 0x20
	pseudo := append(append([]byte{}, ip[12:20]...), 0, unix.IPPROTO_TCP, 0, 20)
	binary.BigEndian.PutUint16(tcp[16:], sum(append(pseudo, tcp...)))
	return append(append(f, ip...), tcp...)
}

func sum(data []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(data); i += 2 {
		s += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// backends are the kinds of iptables of this machine, by the program of all.
func backends(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range []string{"nft", "legacy"} {
		if path, err := find("xtables-"+kind+"-multi", nil); err == nil {
			out[kind] = path
		}
	}
	if len(out) == 0 {
		t.Skip("no iptables on this machine")
	}
	return out
}

// TestNobodyOutsideReachesTheLoopbackNetwork is CVE-2020-8558, on the kernel's
// own firewall and with each kind of iptables that is here.
func TestNobodyOutsideReachesTheLoopbackNetwork(t *testing.T) {
	for kind, program := range backends(t) {
		t.Run(kind, func(t *testing.T) {
			ownNetwork(t)
			dir := t.TempDir()
			for _, name := range []string{"iptables", "ip6tables", "iptables-save"} {
				if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			server, err := net.Listen("tcp4", "0.0.0.0:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			port := uint16(server.Addr().(*net.TCPAddr).Port)
			n, loopback := newNeighbour(t, port), net.IPv4(127, 0, 0, 1)
			if !n.reaches(t, loopback, port) {
				t.Fatal("a neighbour does not reach the loopback network even without a firewall: the test shows nothing")
			}
			k := New(Deps{})
			for _, flush := range [][][]string{
				nil, {{"-t", "filter", "-F"}}, {{"-t", "filter", "-F"}, {"-t", "filter", "-X"}, {"-t", "mangle", "-F"}, {"-t", "mangle", "-X"}},
			} {
				for _, args := range flush {
					tool(t, "iptables", args...)
				}
				if len(flush) > 0 && !n.reaches(t, loopback, port) {
					t.Fatalf("flushed with %q, and still closed", flush)
				}
				if made, err := k.look(t.Context()); err != nil || !made {
					t.Fatalf("after %q: made %v, %v", flush, made, err)
				}
				if n.reaches(t, loopback, port) {
					t.Errorf("after %q a neighbour reaches 127.0.0.1:\n%s", flush, tool(t, "iptables-save"))
				}
				if made, err := k.look(t.Context()); err != nil || made {
					t.Errorf("a second look: made %v, %v", made, err)
				}
				shown(t)
			}
			local, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatalf("the node itself: %v", err)
			}
			local.Close()
		})
	}
}

// shown is what others look for.
func shown(t *testing.T) {
	t.Helper()
	saved := tool(t, "iptables-save")
	for _, line := range []string{
		":KUBE-IPTABLES-HINT - ", ":KUBE-FIREWALL - ", ":KUBE-KUBELET-CANARY - ", "-A INPUT -j KUBE-FIREWALL\n", "-A OUTPUT -j KUBE-FIREWALL\n",
		`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP` + "\n",
	} {
		want := 1
		if strings.Contains(line, "CANARY") {
			want = 3
		}
		if got := strings.Count(saved, line); got != want {
			t.Errorf("iptables-save has %d times %q, want %d:\n%s", got, line, want, saved)
		}
	}
}
