package kubeletconfig

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

const configHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestTheOriginOfAFieldIsWhoeverHasSetItLast(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(configHead+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("config.yaml", "maxPods: 10\nclusterDomain: a\nfeatureGates: {CPUManagerPolicyAlphaOptions: false}\npodPidsLimit: 5\n")
	first := write("conf.d/10.conf", "clusterDomain: b\nfeatureGates: {InPlacePodVerticalScaling: true}\n")
	second := write("conf.d/20.conf", "clusterDomain: c\npodPidsLimit: null\n")
	for name, c := range map[string]struct {
		args []string
		want map[string]string
	}{
		"nothing":           {nil, map[string]string{}},
		"a flag":            {[]string{"--max-pods=42", "-v=4"}, map[string]string{"maxPods": "flag --max-pods", "logging": "flag --v"}},
		"a flag's default":  {[]string{"--max-pods=110", "--register-node"}, map[string]string{"maxPods": "flag --max-pods", "registerNode": "flag --register-node"}},
		"a flag's zero":     {[]string{"--read-only-port=0"}, map[string]string{"readOnlyPort": "flag --read-only-port"}},
		"flags of one kind": {[]string{"--cluster-dns=10.0.0.10,10.0.0.11", "--system-reserved=cpu=100m"}, map[string]string{"clusterDNS": "flag --cluster-dns", "systemReserved": "flag --system-reserved"}},
		"no field's flags":  {[]string{"--root-dir=/x", "--node-ip=10.0.0.1"}, map[string]string{}},
		"nested fields": {[]string{"--client-ca-file=/ca", "--anonymous-auth=false"},
			map[string]string{"authentication": "flag --anonymous-auth, flag --client-ca-file"}},
		"a file": {[]string{"--config=" + file}, map[string]string{
			"maxPods": "file " + file, "clusterDomain": "file " + file, "featureGates": "file " + file, "podPidsLimit": "file " + file,
		}},
		"all of them": {[]string{"--config=" + file, "--config-dir=" + filepath.Join(dir, "conf.d"), "--max-pods=10", "--feature-gates=CPUManagerPolicyAlphaOptions=true"}, map[string]string{
			"maxPods": "flag --max-pods", "clusterDomain": "drop-in " + second,
			"featureGates": "file " + file + ", drop-in " + first + ", flag --feature-gates",
		}},
	} {
		l, err := load(c.args, logr.Discard())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := l.Origins(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestEveryFlagThatSetsAFieldIsItsOrigin(t *testing.T) {
	values := map[string]string{
		"feature-gates": "CPUManagerPolicyAlphaOptions=true", "register-with-taints": "a=b:NoSchedule", "manifest-url-header": "a:b", "eviction-hard": "memory.available<100Mi",
		"authorization-mode": "AlwaysAllow", "address": "127.0.0.1", "healthz-bind-address": "127.0.0.2", "cluster-dns": "10.0.0.10",
	}
	newFlagSet(defaultFlags(), legacyDefaults()).VisitAll(func(f *pflag.Flag) {
		field, ok := strings.CutSuffix(f.Usage, " of the configuration file, and goes before it.")
		if !ok {
			return
		}
		field, _, _ = strings.Cut(strings.TrimPrefix(field, "Sets "), ".")
		value, special := values[f.Name]
		if !special {
			value = f.Value.String()
		}
		from := origins{}
		from.flags([]string{"--" + f.Name + "=" + value}, legacyDefaults())
		if len(from[field]) == 0 && value != "" && value != "[]" {
			t.Errorf("--%s=%s: origins are %v, want one of %s", f.Name, value, from, field)
		}
	})
}
