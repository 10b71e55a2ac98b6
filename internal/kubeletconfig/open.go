package kubeletconfig

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/pflag"
)

// RefuseOpen returns an error when everybody on the network could run commands
// in the node's pods and nobody has asked for that: the kubelet's defaults
// without a file, which are anonymous requests, AlwaysAllow and all addresses.
// A flag or a file that says either makes it somebody's wish.
func (l *Loaded) RefuseOpen() error {
	c := l.Config
	if !*c.EnableServer || !*c.Authentication.Anonymous.Enabled || c.Authorization.Mode != "AlwaysAllow" || l.saysWhoMay() {
		return nil
	}
	if ip, err := netip.ParseAddr(c.Address); err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("without --config this node would be open: everybody who reaches %s could run commands in its pods "+
		"(anonymous requests, authorization mode AlwaysAllow): pass --config with a KubeletConfiguration, "+
		"or --anonymous-auth=false --authorization-mode=Webhook --authentication-token-webhook, or --address=127.0.0.1; "+
		"if it shall be open, say so: --anonymous-auth=true --authorization-mode=AlwaysAllow",
		net.JoinHostPort(c.Address, strconv.Itoa(int(c.Port))))
}

// saysWhoMay tells whether a flag or a file is about who may ask for what.
func (l *Loaded) saysWhoMay() bool {
	if l.origins["authentication"] != nil || l.origins["authorization"] != nil {
		return true
	}
	said := false
	// Load has parsed them before.
	_ = newFlagSet(defaultFlags(), legacyDefaults()).ParseAll(l.Args, func(f *pflag.Flag, _ string) error {
		said = said || f.Name == "anonymous-auth" || f.Name == "authorization-mode"
		return nil
	})
	return said
}
