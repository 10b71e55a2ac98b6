package instance

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// subnets is how many instances can have a network at the same time.
const subnets = 250

// claimSubnet takes the wanted number, or the first free one when wanted is
// negative. An abstract socket is the lock: it ends with the process, however
// that ends. A number whose network is on an interface is in use as well,
// except when it is the wanted one, for then it is the instance's own.
func claimSubnet(wanted int) (n int, release func(), err error) {
	if wanted >= 0 {
		release, err := lockSubnet(wanted)
		if err != nil {
			return 0, nil, fmt.Errorf("claim network 10.210.%d.0/24 again: %w", wanted, err)
		}
		return wanted, release, nil
	}
	used, err := usedSubnets()
	if err != nil {
		return 0, nil, err
	}
	for n := range subnets {
		if used[n] {
			continue
		}
		release, err := lockSubnet(n)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, nil, fmt.Errorf("claim network 10.210.%d.0/24: %w", n, err)
		}
		return n, release, nil
	}
	return 0, nil, fmt.Errorf("claim a network in 10.210.0.0/16: all %d are in use; run `make clean-node`", subnets)
}

func lockSubnet(n int) (func(), error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@polylet-test-subnet-%d", n), Net: "unix"})
	if err != nil {
		return nil, err
	}
	return func() { l.Close() }, nil
}

func usedSubnets() (map[int]bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	used := map[int]bool{}
	for _, addr := range addrs {
		prefix, err := netip.ParsePrefix(addr.String())
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		if b := prefix.Addr().As4(); b[0] == 10 && (b[1] == 210 || b[1] == 211 || b[1] == 212) {
			used[int(b[2])] = true
		}
	}
	return used, nil
}
