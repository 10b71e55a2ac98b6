package kubeletconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnOpenNodeMustBeAskedFor(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args    []string
		refused bool
	}{
		"nothing said":                      {nil, true},
		"with an apiserver":                 {[]string{"--kubeconfig=/k", "--node-ip=10.0.0.1"}, true},
		"flags about something else":        {[]string{"--address=10.0.0.1", "--authentication-token-webhook-cache-ttl=1m", "--read-only-port=0"}, true},
		"on loopback":                       {[]string{"--address=127.0.0.1"}, false},
		"on loopback, IPv6":                 {[]string{"--address=::1"}, false},
		"asked for":                         {[]string{"--anonymous-auth=true", "--authorization-mode=AlwaysAllow"}, false},
		"anonymous asked for":               {[]string{"--anonymous-auth"}, false},
		"AlwaysAllow asked for":             {[]string{"--authorization-mode=AlwaysAllow"}, false},
		"closed by a flag":                  {[]string{"--anonymous-auth=false"}, false},
		"a file, whose defaults are closed": {[]string{"--config=" + file("closed.yaml", "maxPods: 7\n")}, false},
		"a file that asks for it":           {[]string{"--config=" + file("open.yaml", "authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n")}, false},
		"no server":                         {[]string{"--config=" + file("off.yaml", "enableServer: false\n")}, false},
	} {
		l, err := Load(c.args)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err = l.RefuseOpen()
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "--anonymous-auth=true --authorization-mode=AlwaysAllow") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
