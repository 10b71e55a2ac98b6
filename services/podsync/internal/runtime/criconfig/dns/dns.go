// Package dns computes a pod's resolver configuration from its policy, the
// cluster's name servers and the host's resolv.conf.
//
// It is pure but for Read; it must never ask a name server anything.
package dns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits of resolvers, as Kubernetes keeps them.
const (
	maxServers      = 3
	maxSearches     = 32
	maxSearchLength = 2048
	maxDomain       = 253
)

// Config is what of the node a pod's resolver depends on.
type Config struct {
	ClusterDomain string
	ClusterDNS    []string
	// NoHost: there is no host file (resolvConf: ""); name servers are then the
	// node's own loopback, one for each of Families, IPv4's if there is none.
	NoHost   bool
	Families []v1.IPFamily
}

// Host is what a resolv.conf says.
type Host struct {
	Servers, Searches, Options []string
}

// Warning is an event for the pod.
type Warning struct {
	Reason  string
	Message string
	// Node is the message of the same event for the node; empty for none.
	Node string
}

// Read reads a resolv.conf. A file that does not exist is an error that says
// which setting names it.
func Read(path string) (Host, error) {
	f, err := os.Open(path)
	if err != nil {
		return Host{}, fmt.Errorf("read the host's resolver configuration (resolvConf): %w", err)
	}
	defer func() { _ = f.Close() }()
	return Parse(f)
}

// Parse reads a resolv.conf. Of several search lines the last counts, and so of several options of
// a name.
func Parse(r io.Reader) (Host, error) {
	var h Host
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 1 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				return Host{}, errors.New("resolver configuration: a nameserver line has no address")
			}
			h.Servers = append(h.Servers, fields[1])
		case "search":
			h.Searches = nil
			for _, s := range fields[1:] {
				if s != "." { // systemd-resolved's word for none
					h.Searches = append(h.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			h.Options = append(h.Options, fields[1:]...)
		}
	}
	if err := lines.Err(); err != nil {
		return Host{}, fmt.Errorf("resolver configuration: %w", err)
	}
	h.Options = lastOfEach(h.Options)
	return h, nil
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// CheckLimits says what of the host's search domains does not fit into pods'
// configurations, in a sentence for an event of the node; empty when all does.
func CheckLimits(path, clusterDomain string, host Host) string {
	most := maxSearches
	if clusterDomain != "" {
		most -= 3 // those that pods get in front
	}
	if len(host.Searches) > most {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path, most)
	}
	for _, search := range host.Searches {
		if len(search) > maxDomain {
			return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", path, maxDomain)
		}
	}
	if len(strings.Join(host.Searches, " ")) > maxSearchLength {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", path, maxSearchLength)
	}
	return ""
}

// ForPod computes the configuration, cut down to the limits, with a warning
// for all that was not done as asked.
func ForPod(cfg Config, host Host, pod *v1.Pod) (*runtimeapi.DNSConfig, []Warning, error) {
	var warnings []Warning
	policy, err := effective(pod)
	if err != nil {
		return nil, nil, err
	}
	if policy == v1.DNSClusterFirst && len(cfg.ClusterDNS) == 0 {
		lacks := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", v1.DNSClusterFirst, v1.DNSDefault)
		warnings = append(warnings, Warning{
			Reason: "MissingClusterDNS", Node: lacks,
			Message: fmt.Sprintf("pod: %q. %s", fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), lacks),
		})
		policy = v1.DNSDefault
	}
	out := &runtimeapi.DNSConfig{}
	switch policy {
	case v1.DNSNone:
	case v1.DNSClusterFirst:
		out.Servers = slices.Clone(cfg.ClusterDNS)
		out.Searches = unique(append(clusterSearches(cfg, pod.Namespace), host.Searches...))
		out.Options = []string{"ndots:5"}
	default:
		hostDNS(cfg, host, out)
	}
	if c := pod.Spec.DNSConfig; c != nil {
		out.Servers = unique(append(out.Servers, c.Nameservers...))
		out.Searches = unique(append(out.Searches, c.Searches...))
		out.Options = mergeOptions(out.Options, c.Options)
	}
	return out, append(warnings, limit(out)...), nil
}

// effective is the policy with hostNetwork taken in: ClusterFirst then means the host's.
func effective(pod *v1.Pod) (v1.DNSPolicy, error) {
	switch pod.Spec.DNSPolicy {
	case v1.DNSNone, v1.DNSDefault:
		return pod.Spec.DNSPolicy, nil
	case v1.DNSClusterFirstWithHostNet:
		return v1.DNSClusterFirst, nil
	case v1.DNSClusterFirst, "":
		if pod.Spec.HostNetwork {
			return v1.DNSDefault, nil
		}
		return v1.DNSClusterFirst, nil
	}
	return "", fmt.Errorf("invalid DNSPolicy=%v; use ClusterFirst, ClusterFirstWithHostNet, Default or None", pod.Spec.DNSPolicy)
}

func clusterSearches(cfg Config, namespace string) []string {
	if cfg.ClusterDomain == "" {
		return nil
	}
	return []string{namespace + ".svc." + cfg.ClusterDomain, "svc." + cfg.ClusterDomain, cfg.ClusterDomain}
}

func hostDNS(cfg Config, host Host, out *runtimeapi.DNSConfig) {
	if !cfg.NoHost {
		out.Servers, out.Searches, out.Options = slices.Clone(host.Servers), slices.Clone(host.Searches), slices.Clone(host.Options)
		return
	}
	for _, family := range cfg.Families {
		server := "127.0.0.1"
		if family == v1.IPv6Protocol {
			server = "::1"
		}
		out.Servers = append(out.Servers, server)
	}
	if len(out.Servers) == 0 {
		out.Servers = []string{"127.0.0.1"}
	}
	out.Searches = []string{"."}
}

// mergeOptions lets the pod's options replace those of the same name.
func mergeOptions(options []string, more []v1.PodDNSConfigOption) []string {
	for _, o := range more {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		options = append(options, text)
	}
	return lastOfEach(options)
}

// lastOfEach keeps the last option of each name. A pod may have a hundred thousand.
func lastOfEach(options []string) []string {
	var kept []string
	seen := make(map[string]bool, len(options))
	for _, option := range slices.Backward(options) {
		if name, _, _ := strings.Cut(option, ":"); !seen[name] {
			seen[name] = true
			kept = append(kept, option)
		}
	}
	slices.Reverse(kept)
	return kept
}

// limit cuts a configuration down to what resolvers take.
func limit(c *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(c.Servers) > maxServers {
		c.Servers = c.Servers[:maxServers]
		warnings = append(warnings, Warning{Reason: "DNSConfigForming",
			Message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " + strings.Join(c.Servers, " ")})
	}
	fit := slices.DeleteFunc(slices.Clone(c.Searches), func(s string) bool { return len(s) > maxDomain })
	if len(fit) > maxSearches {
		fit = fit[:maxSearches]
	}
	for len(strings.Join(fit, " ")) > maxSearchLength {
		fit = fit[:len(fit)-1]
	}
	if len(fit) != len(c.Searches) {
		c.Searches = fit
		warnings = append(warnings, Warning{Reason: "DNSConfigForming",
			Message: "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(fit, " ")})
	}
	return warnings
}
