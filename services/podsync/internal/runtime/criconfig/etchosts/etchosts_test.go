package etchosts

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestHostNames(t *testing.T) {
	long := strings.Repeat("a", 61) + "-.b"
	for _, c := range []struct {
		name                  string
		spec                  v1.PodSpec
		pod                   string
		host, domain, sandbox string
		fails                 bool
	}{
		{"the pod's", v1.PodSpec{}, "p", "p", "", "p", false},
		{"its own", v1.PodSpec{Hostname: "h"}, "p", "h", "", "h", false},
		{"cut", v1.PodSpec{}, long, strings.Repeat("a", 61), "", strings.Repeat("a", 61), false},
		{"with a subdomain", v1.PodSpec{Hostname: "h", Subdomain: "s"}, "p", "h", "s.ns.svc.cl", "h", false},
		{"whole", v1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: ptr.To(true)}, "p", "h", "s.ns.svc.cl", "h.s.ns.svc.cl", false},
		{"whole without a domain", v1.PodSpec{SetHostnameAsFQDN: ptr.To(true)}, "p", "p", "", "p", false},
		{"whole and too long", v1.PodSpec{Subdomain: strings.Repeat("s", 60), SetHostnameAsFQDN: ptr.To(true)}, "p", "p", strings.Repeat("s", 60) + ".ns.svc.cl", "", true},
		{"overridden", v1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: ptr.To("o.example")}, "p", "o.example", "", "o.example", false},
		{"overridden and cut", v1.PodSpec{HostnameOverride: ptr.To(strings.Repeat("o", 62) + ".e")}, "p", strings.Repeat("o", 62), "", strings.Repeat("o", 62), false},
		{"on the host's network", v1.PodSpec{HostNetwork: true}, "p", "p", "", "", false},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.pod, Namespace: "ns"}, Spec: c.spec}
		if h, d := Name(pod, "cl"); h != c.host || d != c.domain {
			t.Errorf("%s: %q %q, want %q %q", c.name, h, d, c.host, c.domain)
		}
		if s, err := Sandbox(pod, "cl"); s != c.sandbox || (err != nil) != c.fails {
			t.Errorf("%s: sandbox %q, %v; want %q", c.name, s, err, c.sandbox)
		}
	}
}

func TestTheHostsFile(t *testing.T) {
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}}
	want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n10.0.0.1\th.d\th\nfd00::1\th.d\th\n" +
		"\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
	if got := File([]string{"10.0.0.1", "fd00::1"}, "h", "d", aliases); got != want {
		t.Errorf("got %q", got)
	}
	if got := File([]string{"10.0.0.1"}, "h", "", nil); !strings.HasSuffix(got, "allrouters\n10.0.0.1\th\n") {
		t.Errorf("without a domain: %q", got)
	}
	if got := HostNetworkFile("1.1.1.1 host\n", aliases); got != "# Kubernetes-managed hosts file (host network).\n1.1.1.1 host\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n" {
		t.Errorf("host network: %q", got)
	}
}
