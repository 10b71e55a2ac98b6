package nodeaddr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
)

// System is the Host that this process runs on.
func System() Host { return system{procNet: "/proc/net"} }

type system struct{ procNet string }

func (system) Addresses() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	return convert(addrs), err
}

func (system) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

func (s system) DefaultRoute(v6 bool) ([]netip.Addr, error) {
	name, err := s.defaultInterface(v6)
	if err != nil || name == "" {
		return nil, err
	}
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s of the default route: %w", name, err)
	}
	addrs, err := iface.Addrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of interface %s: %w", name, err)
	}
	var out []netip.Addr
	for _, ip := range convert(addrs) {
		if ip.Is6() == v6 && ip.IsGlobalUnicast() {
			out = append(out, ip)
		}
	}
	return out, nil
}

// defaultInterface reads the kernel's routing table; "" when there is no
// default route of the family.
func (s system) defaultInterface(v6 bool) (string, error) {
	file, parse := s.procNet+"/route", parseRoute
	if v6 {
		file, parse = s.procNet+"/ipv6_route", parseRoute6
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // IPv6 is off
	}
	if err != nil {
		return "", fmt.Errorf("read routes: %w", err)
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if name := parse(strings.Fields(line)); name != "" {
			return name, nil
		}
	}
	return "", nil
}

// parseRoute returns the interface of a line of /proc/net/route that is a
// default route with a gateway that is up: destination and mask zero.
func parseRoute(f []string) string {
	if len(f) >= 8 && f[1] == "00000000" && f[7] == "00000000" && usable(f[3]) {
		return f[0]
	}
	return ""
}

// parseRoute6 does the same for /proc/net/ipv6_route.
func parseRoute6(f []string) string {
	if len(f) >= 10 && strings.Trim(f[0], "0") == "" && f[1] == "00" && usable(f[8]) && f[9] != "lo" {
		return f[9]
	}
	return ""
}

// usable reports whether hexadecimal route flags have RTF_UP and not RTF_REJECT.
func usable(flags string) bool {
	var n uint32
	if _, err := fmt.Sscanf(flags, "%x", &n); err != nil {
		return false
	}
	const up, reject = 0x1, 0x200
	return n&up != 0 && n&reject == 0
}

func convert(addrs []net.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if ipnet, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(ipnet.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}
