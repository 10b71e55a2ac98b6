// Package etchosts computes a pod's host name and the content of its /etc/hosts.
//
// It is pure: it must never do I/O.
package etchosts

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	maxLabel = 63
	// maxHostname is the kernel's limit.
	maxHostname = 64
)

// Name is a pod's host name, and its domain when it has a subdomain.
func Name(pod *v1.Pod, clusterDomain string) (hostname, domain string) {
	if o := pod.Spec.HostnameOverride; o != nil && *o != "" {
		return cut(*o), ""
	}
	hostname = pod.Name
	if pod.Spec.Hostname != "" {
		hostname = pod.Spec.Hostname
	}
	hostname = cut(hostname)
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return hostname, domain
}

// cut shortens a name to what every program takes as a host's: one of 64 characters fills the
// kernel's field, and leaves no room for the byte that ends it elsewhere.
func cut(hostname string) string {
	if len(hostname) > maxLabel {
		return strings.TrimRight(hostname[:maxLabel], "-.")
	}
	return hostname
}

// Sandbox is the host name that the sandbox gets: none on the host's network,
// the whole name with setHostnameAsFQDN.
func Sandbox(pod *v1.Pod, clusterDomain string) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	hostname, domain := Name(pod, clusterDomain)
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return hostname, nil
	}
	fqdn := hostname + "." + domain
	if len(fqdn) > maxHostname {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", fqdn, maxHostname, len(fqdn))
	}
	return fqdn, nil
}

// File is a pod's /etc/hosts with its own network.
func File(ips []string, hostname, domain string, aliases []v1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n")
	b.WriteString("127.0.0.1\tlocalhost\n")
	b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
	b.WriteString("fe00::0\tip6-localnet\n")
	b.WriteString("fe00::0\tip6-mcastprefix\n")
	b.WriteString("fe00::1\tip6-allnodes\n")
	b.WriteString("fe00::2\tip6-allrouters\n")
	for _, ip := range ips {
		b.WriteString(ip + "\t")
		if domain != "" {
			b.WriteString(hostname + "." + domain + "\t")
		}
		b.WriteString(hostname + "\n")
	}
	addAliases(&b, aliases)
	return b.String()
}

// HostNetworkFile is the /etc/hosts of a pod on the host's network, from the host's own.
func HostNetworkFile(host string, aliases []v1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file (host network).\n")
	b.WriteString(host)
	addAliases(&b, aliases)
	return b.String()
}

func addAliases(b *strings.Builder, aliases []v1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range aliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
}
