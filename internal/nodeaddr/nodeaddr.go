// Package nodeaddr finds the node's addresses as Kubernetes defines them. It
// owns the order in which the sources are asked; it must never change anything
// on the host.
package nodeaddr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// lookupTimeout bounds the DNS lookup of the node's name.
const lookupTimeout = 5 * time.Second

// Config is what the operator said.
type Config struct {
	// NodeName is the node's name, which is also its Hostname address.
	NodeName string
	// NodeIP is --node-ip: "", one address, two of both families with a comma
	// between, or "0.0.0.0" or "::" to prefer a family.
	NodeIP string
	// ExternalCloud is true with --cloud-provider=external.
	ExternalCloud bool
}

// Host is where the facts come from; System is the real one.
type Host interface {
	// Addresses lists the addresses of all interfaces.
	Addresses() ([]netip.Addr, error)
	// DefaultRoute lists the addresses of the interface of the default route,
	// of one family; none when there is no such route.
	DefaultRoute(v6 bool) ([]netip.Addr, error)
	// Lookup resolves a name.
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
}

// Find returns the node's addresses: InternalIP, a second one with two node
// IPs, and Hostname. With an external cloud existing is kept; before there is any,
// and no node IP, there is only Hostname until the cloud controller fills in the rest.
// Source: https://kubernetes.io/docs/reference/node/node-status/#addresses
func Find(ctx context.Context, cfg Config, host Host, existing []v1.NodeAddress) ([]v1.NodeAddress, error) {
	ips, preferV6, err := cfg.nodeIPs()
	if err != nil {
		return nil, err
	}
	if cfg.ExternalCloud && (len(existing) > 0 || len(ips) > 0 || cfg.NodeIP == "") {
		return external(cfg, ips, existing), nil
	}
	for _, ip := range ips {
		if err := validate(ip, host); err != nil {
			return nil, fmt.Errorf("--node-ip: %w", err)
		}
	}
	if len(ips) == 0 {
		ip, err := discover(ctx, cfg.NodeName, preferV6, host)
		if err != nil {
			return nil, err
		}
		ips = []netip.Addr{ip}
	}
	return list(cfg.NodeName, ips), nil
}

// nodeIPs parses NodeIP; an unspecified address only names a family.
func (c Config) nodeIPs() (ips []netip.Addr, preferV6 bool, err error) {
	if c.NodeIP == "" {
		return nil, false, nil
	}
	for _, text := range strings.Split(c.NodeIP, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, false, fmt.Errorf("--node-ip %q: %w", c.NodeIP, err)
		}
		ips = append(ips, ip.Unmap())
	}
	if len(ips) == 1 && ips[0].IsUnspecified() {
		return nil, ips[0].Is6(), nil
	}
	return ips, ips[0].Is6(), nil
}

func external(cfg Config, ips []netip.Addr, existing []v1.NodeAddress) []v1.NodeAddress {
	if len(existing) > 0 {
		return existing
	}
	return list(cfg.NodeName, ips)
}

func list(name string, ips []netip.Addr) []v1.NodeAddress {
	out := make([]v1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: name})
}

// discover asks, in order: the name itself, DNS, the default route.
func discover(ctx context.Context, name string, preferV6 bool, host Host) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	// A name that does not resolve is usual; the route is asked then.
	resolved, lookupErr := host.Lookup(ctx, name)
	if ip, ok := pick(resolved, preferV6, host); ok {
		return ip, nil
	}
	var errs []error
	for _, v6 := range []bool{preferV6, !preferV6} {
		routed, err := host.DefaultRoute(v6)
		errs = append(errs, err)
		if ip, ok := pick(routed, v6, host); ok {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("find an address for node %q: DNS gave %v (%v), and the default route gave none (%v): pass --node-ip",
		name, resolved, lookupErr, errors.Join(errs...))
}

// pick returns the first usable address of the preferred family, else of the other.
func pick(ips []netip.Addr, preferV6 bool, host Host) (netip.Addr, bool) {
	for _, wanted := range []bool{preferV6, !preferV6} {
		for _, ip := range ips {
			ip = ip.Unmap()
			if ip.Is6() == wanted && validate(ip, host) == nil {
				return ip, true
			}
		}
	}
	return netip.Addr{}, false
}

func validate(ip netip.Addr, host Host) error {
	switch {
	case ip.IsLoopback():
		return fmt.Errorf("%s is a loopback address", ip)
	case ip.IsMulticast():
		return fmt.Errorf("%s is a multicast address", ip)
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("%s is a link-local address", ip)
	case ip.IsUnspecified():
		return fmt.Errorf("%s is no address of a host", ip)
	}
	all, err := host.Addresses()
	if err != nil {
		return fmt.Errorf("list the host's addresses: %w", err)
	}
	if !slices.ContainsFunc(all, func(a netip.Addr) bool { return a.Unmap().WithZone("") == ip.WithZone("") }) {
		return fmt.Errorf("%s is on no interface of this host", ip)
	}
	return nil
}
