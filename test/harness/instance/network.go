package instance

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cniState is where libcni keeps one file per attachment.
const cniState = "/var/lib/cni"

// removeNetwork removes the bridge, the pods' network namespaces with it (they
// are mounts below the instance's directory), the port mappings, libcni's files
// and the route of the services' network.
func (i *Instance) removeNetwork() error {
	if len(i.inside) > 0 {
		// What is in namespaces goes with them, and they with their processes.
		return i.removeCNIState()
	}
	return errors.Join(i.removeBridge(i.Bridge()), i.removeBridge(i.LAN()), i.removePortMappings(), i.removeCNIState(), i.UnrouteServices())
}

// HasBridge tells whether the instance's bridge exists.
func (i *Instance) HasBridge() bool { return i.has(i.Bridge()) }

func (i *Instance) has(link string) bool {
	if len(i.inside) > 0 {
		return i.ip("link", "show", link) == nil
	}
	_, err := net.InterfaceByName(link)
	return err == nil
}

func (i *Instance) removeBridge(name string) error {
	if !i.has(name) {
		return nil
	}
	return i.ip("link", "delete", name)
}

// RouteServices makes the services' network unreachable, so that a connection to
// a service that nothing serves fails here and never leaves the machine.
func (i *Instance) RouteServices() error {
	return i.ip("route", "replace", "unreachable", i.ServiceCIDR())
}

// RouteServicesToPods is RouteServices for a cluster with a kube-proxy: the host
// may connect to services, too, and what no rule sends elsewhere ends at the
// bridge. The route goes with it.
func (i *Instance) RouteServicesToPods() error {
	if err := i.UnrouteServices(); err != nil {
		return err
	}
	return i.ip("route", "replace", i.ServiceCIDR(), "dev", i.Bridge())
}

// UnrouteServices takes back what RouteServices did.
func (i *Instance) UnrouteServices() error {
	argv := slices.Concat(i.inside, []string{"ip", "route", "show", "type", "unreachable"})
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	if !strings.Contains(string(out), i.ServiceCIDR()) {
		return nil
	}
	return i.ip("route", "delete", "unreachable", i.ServiceCIDR())
}

// removePortMappings deletes the portmap plugin's rules of this network; they
// carry its name in a comment. The chains that they jump to go with them.
func (i *Instance) removePortMappings() error {
	for _, program := range []string{"iptables", "ip6tables"} {
		out, err := exec.Command(program+"-save", "-t", "nat").Output()
		if err != nil {
			continue // no such tables on this kernel, so no rules either
		}
		if err := i.removeRules(program, string(out)); err != nil {
			return err
		}
	}
	return nil
}

func (i *Instance) removeRules(program, saved string) error {
	var chains []string
	lines := bufio.NewScanner(strings.NewReader(saved))
	for lines.Scan() {
		rule := lines.Text()
		if !strings.HasPrefix(rule, "-A ") || !strings.Contains(rule, `name: \"`+i.Network()+`\"`) {
			continue
		}
		if _, target, ok := strings.Cut(rule, " -j CNI-"); ok {
			chains = append(chains, "CNI-"+strings.Fields(target)[0])
		}
		script := "*nat\n-D " + strings.TrimPrefix(rule, "-A ") + "\nCOMMIT\n"
		if err := restore(program, script); err != nil {
			return err
		}
	}
	for _, chain := range chains {
		if err := restore(program, "*nat\n-F "+chain+"\n-X "+chain+"\nCOMMIT\n"); err != nil {
			return err
		}
	}
	return nil
}

func restore(program, script string) error {
	cmd := exec.Command(program+"-restore", "--noflush")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s-restore %q: %w: %s", program, script, err, out)
	}
	return nil
}

// removeCNIState removes libcni's notes of attachments whose network namespace
// was the instance's: its network's and every sandbox's loopback's.
func (i *Instance) removeCNIState() error {
	for _, pattern := range []string{"results", "cache/results"} {
		files, err := filepath.Glob(filepath.Join(cniState, pattern, "*"))
		if err != nil {
			return err
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil || !strings.Contains(string(data), `"netns":"`+i.Dir+"/") {
				continue // another instance has just removed it, or owns it
			}
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove CNI state: %w", err)
			}
		}
	}
	return nil
}

// ip runs ip where the instance's network is.
func (i *Instance) ip(args ...string) error {
	argv := slices.Concat(i.inside, []string{"ip"}, args)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// AddBridge makes the bridge before the first pod does, so that the node has an
// address that is the instance's own and that pods can reach. It is not an error
// when the bridge is there.
func (i *Instance) AddBridge() error {
	return i.addBridge(i.Bridge(), i.PodGateway())
}

// AddLAN makes the bridge between nodes, unless it is there.
func (i *Instance) AddLAN() error { return i.addBridge(i.LAN(), i.LANAddress(1)) }

func (i *Instance) addBridge(name, address string) error {
	if i.has(name) {
		return nil
	}
	if err := i.ip("link", "add", name, "type", "bridge"); err != nil {
		return err
	}
	if err := i.ip("address", "add", address+"/24", "dev", name); err != nil {
		return err
	}
	return i.ip("link", "set", name, "up")
}

// Route has a network reached by way of an address. The route goes with the link
// that it leads to.
func (i *Instance) Route(network, by string) error {
	return i.ip("route", "replace", network, "via", by)
}
