package dns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/internal/testkit/cputime"
)

func TestAResolvConfIsRead(t *testing.T) {
	h, err := Parse(strings.NewReader("# c\n; c\nnameserver 1.1.1.1\nnameserver 2.2.2.2 # x\nsearch old\nsearch a.b. c .\noptions ndots:2 rotate\noptions rotate ndots:4 edns0\n\nsortlist x\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h); got != "{[1.1.1.1 2.2.2.2] [a.b c] [rotate ndots:4 edns0]}" {
		t.Error(got)
	}
	if _, err := Parse(strings.NewReader("nameserver")); err == nil {
		t.Error("a nameserver line without an address was read")
	}
	if _, err := Read("/nonexistent"); err == nil || !strings.Contains(err.Error(), "resolvConf") {
		t.Errorf("err = %v, want it to name the setting", err)
	}
}

func TestAPodsOptionsAreAsMuchWorkAsTheyAreMany(t *testing.T) {
	const many = 100_000
	pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}}}
	for n := range many {
		pod.Spec.DNSConfig.Options = append(pod.Spec.DNSConfig.Options, v1.PodDNSConfigOption{Name: fmt.Sprintf("%x", n)})
	}
	took := cputime.Of(t, func() {
		if got, _, err := ForPod(Config{}, Host{}, pod); err != nil || len(got.Options) != many {
			t.Errorf("%d options, %v", len(got.GetOptions()), err)
		}
	})
	if took > 10*time.Second { // it was a minute, and is a tenth of a second
		t.Errorf("that took %v of a processor", took)
	}
}

func TestPoliciesChooseTheResolver(t *testing.T) {
	cfg := Config{ClusterDomain: "cluster.local", ClusterDNS: []string{"10.96.0.10"}}
	host := Host{Servers: []string{"9.9.9.9"}, Searches: []string{"corp"}, Options: []string{"rotate"}}
	own := &v1.PodDNSConfig{Nameservers: []string{"8.8.8.8"}, Searches: []string{"mine"}, Options: []v1.PodDNSConfigOption{
		{Name: "ndots", Value: ptr.To("1")}, {Name: "edns0"},
	}}
	cluster := "[10.96.0.10] [ns.svc.cluster.local svc.cluster.local cluster.local corp] [ndots:5]"
	fromHost := "[9.9.9.9] [corp] [rotate]"
	for _, c := range []struct {
		name   string
		policy v1.DNSPolicy
		net    bool
		own    *v1.PodDNSConfig
		cfg    Config
		want   string
		warn   string
	}{
		{"cluster first", v1.DNSClusterFirst, false, nil, cfg, cluster, ""},
		{"unset", "", false, nil, cfg, cluster, ""},
		{"cluster first on the host's network", v1.DNSClusterFirst, true, nil, cfg, fromHost, ""},
		{"with host net", v1.DNSClusterFirstWithHostNet, true, nil, cfg, cluster, ""},
		{"default", v1.DNSDefault, false, nil, cfg, fromHost, ""},
		{"none", v1.DNSNone, false, own, cfg, "[8.8.8.8] [mine] [ndots:1 edns0]", ""},
		{"own over the cluster's", v1.DNSClusterFirst, false, own, cfg,
			"[10.96.0.10 8.8.8.8] [ns.svc.cluster.local svc.cluster.local cluster.local corp mine] [ndots:1 edns0]", ""},
		{"no cluster DNS", v1.DNSClusterFirst, false, nil, Config{ClusterDomain: "cluster.local"}, fromHost, "MissingClusterDNS"},
		{"no host file", v1.DNSDefault, false, nil, Config{NoHost: true}, "[127.0.0.1] [.] []", ""},
		{"no host file on IPv6", v1.DNSDefault, false, nil, Config{NoHost: true, Families: []v1.IPFamily{v1.IPv6Protocol}}, "[::1] [.] []", ""},
		{"no host file, both families", v1.DNSDefault, false, nil, Config{NoHost: true, Families: []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol}}, "[::1 127.0.0.1] [.] []", ""},
		{"no cluster domain", v1.DNSClusterFirst, false, nil, Config{ClusterDNS: []string{"10.96.0.10"}}, "[10.96.0.10] [corp] [ndots:5]", ""},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: v1.PodSpec{DNSPolicy: c.policy, HostNetwork: c.net, DNSConfig: c.own}}
		got, warnings, err := ForPod(c.cfg, host, pod)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if text := fmt.Sprint(got.Servers, " ", got.Searches, " ", got.Options); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
		if (len(warnings) == 0) != (c.warn == "") || (c.warn != "" && warnings[0].Reason != c.warn) {
			t.Errorf("%s: warnings %v, want %q", c.name, warnings, c.warn)
		}
	}
	if _, _, err := ForPod(cfg, host, &v1.Pod{Spec: v1.PodSpec{DNSPolicy: "X"}}); err == nil {
		t.Error("an unknown policy was taken")
	}
	if fmt.Sprint(host) != "{[9.9.9.9] [corp] [rotate]}" {
		t.Errorf("the host's configuration was changed: %v", host)
	}
}

func TestLimitsAreKeptWithAWarning(t *testing.T) {
	many := func(n, length int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("%0*d", length, i)
		}
		return list
	}
	for _, c := range []struct {
		name              string
		servers, searches []string
		wantServers       int
		wantSearches      int
		warnings          int
	}{
		{"within", many(3, 1), many(32, 60), 3, 32, 0},
		{"servers", many(4, 1), nil, 3, 0, 1},
		{"searches", nil, many(33, 3), 0, 32, 1},
		{"length", nil, many(20, 200), 0, 10, 1},
		{"domain", nil, []string{strings.Repeat("x", 254), strings.Repeat("x", 253)}, 0, 1, 1},
		{"both", many(9, 1), many(40, 1), 3, 32, 2},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Nameservers: c.servers, Searches: c.searches}}}
		got, warnings, err := ForPod(Config{}, Host{}, pod)
		if err != nil || len(got.Servers) != c.wantServers || len(got.Searches) != c.wantSearches || len(warnings) != c.warnings {
			t.Errorf("%s: %d servers, %d searches, %v, %v", c.name, len(got.Servers), len(got.Searches), warnings, err)
		}
		for _, w := range warnings {
			if w.Reason != "DNSConfigForming" {
				t.Errorf("%s: reason %s", c.name, w.Reason)
			}
		}
	}
}
