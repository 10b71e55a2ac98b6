package nodeinfo

import (
	"context"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/nodeaddr"
)

// FollowAddresses finds the host's addresses, and again when those that the Node
// object shows have changed: whoever writes them has seen it.
func (n *Node) FollowAddresses(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	var shown []v1.NodeAddress // by the object when they were found last
	for ctx.Err() == nil {
		again := false
		if n.deps.HostIPs == nil {
			var now []v1.NodeAddress
			object := n.object.Load()
			if object != nil {
				now = object.Status.Addresses
			}
			if n.addresses.Load() == nil || !slices.Equal(now, shown) {
				again = !n.findAddresses(ctx, now)
				if !again {
					shown = now
				}
			}
			known := !again && (object != nil || n.deps.Client == nil) && n.addressesKnown.CompareAndSwap(false, true)
			if n.addressesSought.CompareAndSwap(false, true) || known {
				n.deps.Pods.Recheck()
			}
		}
		n.addressesChanged.Wait(ctx, retry, again)
	}
	return nil
}

// findAddresses finds the host's addresses and says whether it did; existing
// are those that the Node object shows.
func (n *Node) findAddresses(ctx context.Context, existing []v1.NodeAddress) bool {
	found, err := nodeaddr.Find(ctx, nodeaddr.Config{
		NodeName: n.cfg.Name, NodeIP: n.cfg.IP, ExternalCloud: n.cfg.ExternalCloud,
	}, nodeaddr.System(), existing)
	if err != nil {
		n.deps.Health.Set("node address", false, err.Error())
		if ips := hostAddresses(existing); len(ips) > 0 && n.addresses.CompareAndSwap(nil, &ips) {
			n.deps.Pods.Recheck() // what the Node says meanwhile
		}
		return false
	}
	ips := hostAddresses(found)
	n.deps.Health.Set("node address", len(ips) > 0, "the node has no address yet: with --cloud-provider=external the cloud's controller writes it into the Node; --node-ip sets one")
	if old := n.addresses.Swap(&ips); old == nil || !slices.Equal(*old, ips) {
		n.deps.Pods.Recheck()
	}
	return true
}

// hostAddresses are the addresses of a node that its pods show as the host's, and
// those on its network as their own: internal ones before external ones, the first
// of all and the first of the other family. The API takes no more.
func hostAddresses(found []v1.NodeAddress) []string {
	var ips []string
	var first netip.Addr
	for _, of := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range found {
			ip, err := netip.ParseAddr(a.Address)
			switch {
			case a.Type != of || err != nil:
			case len(ips) == 0:
				ips, first = append(ips, a.Address), ip.Unmap()
			case len(ips) == 1 && ip.Unmap().Is4() != first.Is4():
				ips = append(ips, a.Address)
			}
		}
	}
	return ips
}

// HostIPs are the machine's addresses, those of the first family first; nil before
// any is known.
func (n *Node) HostIPs() []string {
	if n.deps.HostIPs != nil {
		return n.deps.HostIPs()
	}
	if ips := n.addresses.Load(); ips != nil {
		return *ips
	}
	return nil
}

// HostIPsSought says whether the addresses were looked for since the start, and
// HostIPsKnown whether they were found where the Node object was known: before that
// none that a pod shows is taken back.
func (n *Node) HostIPsSought() bool { return n.addressesSought.Load() }

// HostIPsKnown is described with HostIPsSought.
func (n *Node) HostIPsKnown() bool { return n.addressesKnown.Load() }
