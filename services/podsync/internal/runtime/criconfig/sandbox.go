package criconfig

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/dns"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/etchosts"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/labels"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/security"
)

// Sandbox builds a sandbox's configuration and names the runtime handler. It
// makes the pod's directory, its log directory and its cgroup.
func (b *Builder) Sandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, string, error) {
	handler, err := b.handler(ctx, pod)
	if err != nil {
		return nil, "", err
	}
	hostname, err := etchosts.Sandbox(b.named(pod), b.cfg.ClusterDomain)
	if err != nil {
		return nil, "", err
	}
	resolver, err := b.resolver(pod)
	if err != nil {
		return nil, "", err
	}
	if err := b.makeDirs(pod); err != nil {
		return nil, "", err
	}
	users, err := b.userNamespace(pod, handler)
	if err != nil {
		return nil, "", err
	}
	config, err := b.Pull(ctx, pod)
	if err != nil {
		return nil, "", err
	}
	context := security.Sandbox(pod)
	context.NamespaceOptions.UsernsOptions = users
	config.Metadata.Attempt = attempt
	config.Hostname = hostname
	config.DnsConfig = resolver
	config.PortMappings = ports(pod)
	config.Linux.SecurityContext = context
	config.Linux.Sysctls = sysctls(pod)
	config.Linux.Overhead = b.overhead(pod)
	config.Linux.Resources = b.sandboxResources(pod)
	return config, handler, nil
}

// Pull is what of a sandbox's configuration images may be pulled by: whose it is, what
// is written on it, and its cgroup. It makes nothing and says nothing, so that a pull
// can begin beside the sandbox.
func (b *Builder) Pull(ctx context.Context, pod *v1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	parent, err := b.deps.Cgroups.ParentOf(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCgroup, err)
	}
	annotations, err := labels.PodAnnotations(pod)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		LogDirectory: b.logDir(pod),
		Labels:       labels.PodLabels(pod),
		Annotations:  annotations,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent},
	}, nil
}

// handler is the runtime handler of the pod's class; empty for the default.
func (b *Builder) handler(ctx context.Context, pod *v1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := b.deps.Objects.RuntimeClass(ctx, *name)
	if err != nil {
		return "", fmt.Errorf("failed to get runtime handler of RuntimeClass %q: %w", *name, err)
	}
	return class.Handler, nil
}

// resolver is the pod's DNS configuration; what was cut is told as events.
func (b *Builder) resolver(pod *v1.Pod) (*runtimeapi.DNSConfig, error) {
	var host dns.Host
	if b.cfg.ResolvConf != "" {
		var err error
		host, err = dns.Read(b.cfg.ResolvConf)
		b.checkHostDNS(host, err)
		if err != nil {
			return nil, err
		}
	}
	config, warnings, err := dns.ForPod(dns.Config{
		ClusterDomain: b.cfg.ClusterDomain, ClusterDNS: b.cfg.ClusterDNS, NoHost: b.cfg.ResolvConf == "", Families: b.families(),
	}, host, pod)
	if b.deps.Recorder != nil {
		for _, w := range warnings {
			if w.Node != "" {
				b.deps.Recorder.Event(&v1.Node{}, v1.EventTypeWarning, w.Reason, w.Node)
			}
			b.deps.Recorder.Event(pod, v1.EventTypeWarning, w.Reason, w.Message)
		}
	}
	return config, err
}

// checkHostDNS tells the node once what its own resolver configuration has that
// pods cannot get, and again when that is another thing.
func (b *Builder) checkHostDNS(host dns.Host, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	} else {
		text = dns.CheckLimits(b.cfg.ResolvConf, b.cfg.ClusterDomain, host)
	}
	before := b.hostDNS.Swap(&text)
	if b.deps.Recorder != nil && text != "" && (before == nil || *before != text) {
		b.deps.Recorder.Event(&v1.Node{}, v1.EventTypeWarning, "CheckLimitsForResolvConf", text)
	}
}

// families are those of the node's addresses, in their order.
func (b *Builder) families() (list []v1.IPFamily) {
	for _, ip := range b.deps.HostIPs() {
		addr, err := netip.ParseAddr(ip)
		switch {
		case err != nil:
		case addr.Is6() && !addr.Is4In6():
			list = append(list, v1.IPv6Protocol)
		default:
			list = append(list, v1.IPv4Protocol)
		}
	}
	return list
}

// named is the pod with what of its names counts on this node.
func (b *Builder) named(pod *v1.Pod) *v1.Pod {
	if !b.cfg.NoHostnameOverride || pod.Spec.HostnameOverride == nil {
		return pod
	}
	plain := *pod
	plain.Spec.HostnameOverride = nil
	return &plain
}

func (b *Builder) podDir(pod *v1.Pod) string {
	return filepath.Join(b.cfg.RootDir, "pods", string(pod.UID))
}

func (b *Builder) logDir(pod *v1.Pod) string {
	return filepath.Join(b.cfg.PodLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

func (b *Builder) makeDirs(pod *v1.Pod) error {
	if uid := string(pod.UID); uid == "" || uid == "." || uid == ".." || strings.Contains(uid, "/") {
		return fmt.Errorf("pod UID %q cannot be a directory's name", uid)
	}
	if err := os.MkdirAll(b.podDir(pod), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	if err := os.MkdirAll(b.logDir(pod), 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	return nil
}

// ports are the ports of all containers that stay; the host's network needs none.
func ports(pod *v1.Pod) []*runtimeapi.PortMapping {
	if pod.Spec.HostNetwork {
		return nil
	}
	var list []*runtimeapi.PortMapping
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			list = append(list, &runtimeapi.PortMapping{
				Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	for i := range pod.Spec.InitContainers {
		if podutil.Sidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return list
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

// sysctls are passed on as asked; which are allowed is admission's.
func sysctls(pod *v1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	m := map[string]string{}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		m[sysctlName(s.Name)] = s.Value
	}
	return m
}

// sysctlName turns net/ipv4/x into net.ipv4.x; with '/' as separator a '.' is
// part of a name, as in an interface's.
func sysctlName(name string) string {
	i := strings.IndexAny(name, "./")
	if i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return r
	}, name)
}
