package podutil

import (
	"net/netip"
	"slices"
)

// ShownIPs are the pod addresses to show of those that a sandbox has: the first of
// each family, that of the node's primary address first; IPv4 when the node has none.
func ShownIPs(ips, node []string) []string {
	six := len(node) > 0 && isIPv6(node[0])
	var first, second string
	for _, ip := range ips {
		switch {
		case first == "" && isIPv6(ip) == six:
			first = ip
		case second == "" && isIPv6(ip) != six:
			second = ip
		}
	}
	return slices.DeleteFunc([]string{first, second}, func(ip string) bool { return ip == "" })
}

func isIPv6(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Unmap().Is6()
}
