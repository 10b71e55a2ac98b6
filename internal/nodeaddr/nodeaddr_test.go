package nodeaddr

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

type fakeHost struct {
	addresses, v4, v6 []string
	dns               map[string][]string
}

func parse(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func (h fakeHost) Addresses() ([]netip.Addr, error) { return parse(h.addresses), nil }

func (h fakeHost) DefaultRoute(v6 bool) ([]netip.Addr, error) {
	if v6 {
		return parse(h.v6), nil
	}
	return parse(h.v4), nil
}

func (h fakeHost) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	if ips, ok := h.dns[name]; ok {
		return parse(ips), nil
	}
	return nil, errors.New("no such host")
}

func text(addrs []v1.NodeAddress) string {
	var parts []string
	for _, a := range addrs {
		parts = append(parts, string(a.Type)+"="+a.Address)
	}
	return strings.Join(parts, " ")
}

func TestAddressesComeFromTheFirstSourceThatHasOne(t *testing.T) {
	host := fakeHost{
		addresses: []string{"127.0.0.1", "10.0.0.5", "192.168.1.2", "fd00::5", "fe80::1"},
		v4:        []string{"192.168.1.2"}, v6: []string{"fd00::5"},
		dns: map[string][]string{"resolves": {"fd00::5", "10.0.0.5"}, "debian": {"127.0.1.1"}, "elsewhere": {"8.8.8.8"}},
	}
	existing := []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "1.2.3.4"}}
	for name, tc := range map[string]struct {
		cfg      Config
		existing []v1.NodeAddress
		want     string
		wantErr  string
	}{
		"node-ip":              {cfg: Config{NodeName: "n", NodeIP: "10.0.0.5"}, want: "InternalIP=10.0.0.5 Hostname=n"},
		"two node-ips":         {cfg: Config{NodeName: "n", NodeIP: "10.0.0.5,fd00::5"}, want: "InternalIP=10.0.0.5 InternalIP=fd00::5 Hostname=n"},
		"name is an address":   {cfg: Config{NodeName: "10.9.9.9"}, want: "InternalIP=10.9.9.9 Hostname=10.9.9.9"},
		"dns, v4 first":        {cfg: Config{NodeName: "resolves"}, want: "InternalIP=10.0.0.5 Hostname=resolves"},
		"dns, v6 preferred":    {cfg: Config{NodeName: "resolves", NodeIP: "::"}, want: "InternalIP=fd00::5 Hostname=resolves"},
		"dns gives loopback":   {cfg: Config{NodeName: "debian"}, want: "InternalIP=192.168.1.2 Hostname=debian"},
		"dns gives a stranger": {cfg: Config{NodeName: "elsewhere"}, want: "InternalIP=192.168.1.2 Hostname=elsewhere"},
		"no dns":               {cfg: Config{NodeName: "n"}, want: "InternalIP=192.168.1.2 Hostname=n"},
		"no dns, v6 preferred": {cfg: Config{NodeName: "n", NodeIP: "::"}, want: "InternalIP=fd00::5 Hostname=n"},
		"cloud, first":         {cfg: Config{NodeName: "n", ExternalCloud: true}, want: "Hostname=n"},
		"cloud with node-ip":   {cfg: Config{NodeName: "n", ExternalCloud: true, NodeIP: "7.7.7.7"}, want: "InternalIP=7.7.7.7 Hostname=n"},
		"cloud, v6 preferred":  {cfg: Config{NodeName: "n", ExternalCloud: true, NodeIP: "::"}, want: "InternalIP=fd00::5 Hostname=n"},
		"cloud, v6, later":     {cfg: Config{NodeName: "n", ExternalCloud: true, NodeIP: "::"}, existing: existing, want: "ExternalIP=1.2.3.4"},
		"cloud, later":         {cfg: Config{NodeName: "n", ExternalCloud: true}, existing: existing, want: "ExternalIP=1.2.3.4"},
		"loopback":             {cfg: Config{NodeName: "n", NodeIP: "127.0.0.1"}, wantErr: "127.0.0.1 is a loopback"},
		"link-local":           {cfg: Config{NodeName: "n", NodeIP: "fe80::1"}, wantErr: "link-local"},
		"not ours":             {cfg: Config{NodeName: "n", NodeIP: "8.8.8.8"}, wantErr: "on no interface"},
		"nonsense":             {cfg: Config{NodeName: "n", NodeIP: "x"}, wantErr: "--node-ip"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(t.Context(), tc.cfg, host, tc.existing)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("err = %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || text(got) != tc.want {
				t.Fatalf("%s, %v; want %s", text(got), err, tc.want)
			}
		})
	}
}

func TestAHostWithoutRouteOrNameSaysWhatToPass(t *testing.T) {
	_, err := Find(t.Context(), Config{NodeName: "n"}, fakeHost{addresses: []string{"127.0.0.1"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "pass --node-ip") || !strings.Contains(err.Error(), `"n"`) {
		t.Fatalf("err = %v", err)
	}
}

func TestTheDefaultRouteIsReadFromTheKernelsTables(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
			"eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n" +
			"eth2\t00000000\t0100000A\t0203\t0\t0\t0\t00000000\t0\t0\t0\n" +
			"eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
		"ipv6_route": "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n" +
			"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth6\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := system{procNet: dir}
	for v6, want := range map[bool]string{false: "eth0", true: "eth6"} {
		if got, err := s.defaultInterface(v6); err != nil || got != want {
			t.Errorf("v6=%v: %q, %v; want %q", v6, got, err, want)
		}
	}
	if got, err := (system{procNet: dir + "/none"}).defaultInterface(true); got != "" || err != nil {
		t.Errorf("without tables: %q, %v", got, err)
	}
	if ips, err := System().Addresses(); err != nil || len(ips) == 0 {
		t.Errorf("this host: %v, %v", ips, err)
	}
}
