package kubeletconfig

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/cputime"
)

func TestADocumentLiesOverTheFilesAndUnderTheFlags(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "c.yaml", header+"maxPods: 10\nclusterDomain: a\nevictionHard: {memory.available: 1Gi}\npodPidsLimit: 5\n")
	write(t, dir, "conf.d/10.conf", header+"clusterDomain: b\n")
	over := &Over{Name: "ConfigMap ns/c", Document: []byte(header + "maxPods: 20\nclusterDomain: c\nevictionHard: {nodefs.available: 7%}\npodPidsLimit: null\nkubeAPIBurst: 7\n")}
	args := []string{"--hostname-override=n", "--config=" + file, "--config-dir=" + dir + "/conf.d", "--kube-api-burst=9"}
	l, err := LoadOver(args, over)
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if c.MaxPods != 20 || c.ClusterDomain != "c" || c.EvictionHard["nodefs.available"] != "7%" || c.EvictionHard["memory.available"] != "1Gi" || *c.PodPidsLimit != -1 || c.KubeAPIBurst != 9 {
		t.Errorf("%s", l.ConfigzJSON())
	}
	from := l.Origins()
	if from["maxPods"] != "ConfigMap ns/c" || from["clusterDomain"] != "ConfigMap ns/c" || from["evictionHard"] != "file "+file+", ConfigMap ns/c" || from["kubeAPIBurst"] != "flag --kube-api-burst" {
		t.Errorf("set by %v", from)
	}
	if l.OverSum() == "" || l.OverSum() != over.Sum() {
		t.Errorf("its sum is %q, the document's %q", l.OverSum(), over.Sum())
	}
	kept, err := OfDocument(args, l.SecretCopyJSON(), from, l.OverSum())
	if err != nil || kept.OverSum() != over.Sum() {
		t.Errorf("kept: %v", err)
	}
}

func TestADocumentLiesOverFlagsAloneToo(t *testing.T) {
	over := &Over{Name: "ConfigMap ns/c", Document: []byte(header + "maxPods: 20\nregistryBurst: 3\n")}
	l, err := LoadOver([]string{"--hostname-override=n", "--max-pods=30"}, over)
	if err != nil || l.Config.MaxPods != 30 || l.Config.RegistryBurst != 3 {
		t.Errorf("%v", err)
	}
	without, err := LoadOver([]string{"--hostname-override=n"}, nil)
	if err != nil || without.OverSum() != "" || len(without.Origins()) != 0 {
		t.Errorf("none at all: %v", err)
	}
}

func TestWhatIsWrongWithADocumentNamesIt(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "the file is empty",
		"kind: Other\napiVersion: v1\n": "want apiVersion kubelet.config.k8s.io/v1beta1",
		header + "maxPods: [":           "neither YAML nor JSON",
		header + "maxPods: many\n":      "decode",
	} {
		_, err := LoadOver([]string{"--hostname-override=n"}, &Over{Name: "ConfigMap ns/c", Document: []byte(text)})
		if err == nil || !strings.HasPrefix(err.Error(), "ConfigMap ns/c: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestADocumentThatGrowsWhileItIsReadIsRefused: whoever writes it would else end the
// owner of the configuration at each of its starts, for it is kept.
func TestADocumentThatGrowsWhileItIsReadIsRefused(t *testing.T) {
	repeated := header + "a: &a1 " + strings.Repeat("x", 30<<10) + "\nb: [" + strings.Repeat("*a1,", 1000) + "]\n"
	flat := header + "a: [" + strings.Repeat("0,", mostOver/2) + "]\n"
	for text, want := range map[string]string{repeated: "an anchor (&a", flat: fmt.Sprintf("more than the %d", mostOver)} {
		_, err := LoadOver([]string{"--hostname-override=n"}, &Over{Name: "ConfigMap ns/c", Document: []byte(text)})
		if err == nil || !strings.HasPrefix(err.Error(), "ConfigMap ns/c") || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %.200v", want, err)
		}
	}
	ampersands := header + "clusterDomain: a # this & that\n"
	if _, err := LoadOver([]string{"--hostname-override=n"}, &Over{Name: "ConfigMap ns/c", Document: []byte(ampersands)}); err != nil {
		t.Error(err)
	}
}

// TestAQuantityThatTakesTheMachineToReadIsRefused: Kubernetes' parser makes a number of as
// many digits as the exponent says.
func TestAQuantityThatTakesTheMachineToReadIsRefused(t *testing.T) {
	for _, text := range []string{
		"containerLogMaxSize: '1e-20000000'", "evictionHard: {memory.available: '12345678901234567890123E+9999'}", "logging: {options: {json: {infoBufferSize: \"1\\x65-20000000\"}}}",
		"reservedMemory: [{numaNode: 0, limits: {memory: '.1e-20000000'}}]",
	} {
		var err error
		took := cputime.Of(t, func() {
			_, err = LoadOver([]string{"--hostname-override=n"}, &Over{Name: "ConfigMap ns/c", Document: []byte(header + text)})
		})
		if err == nil || !strings.Contains(err.Error(), "exponent") || took > time.Second {
			t.Errorf("%s: %v, after %v", text, err, took)
		}
	}
	for _, text := range []string{"containerLogMaxSize: '1e7'", "clusterDomain: node1234"} {
		if _, err := LoadOver([]string{"--hostname-override=n"}, &Over{Name: "ConfigMap ns/c", Document: []byte(header + text)}); err != nil {
			t.Error(err)
		}
	}
}

func TestProcessorsThatNoMachineHasAreRefusedUncounted(t *testing.T) {
	for _, text := range []string{"0-20000000", strings.Repeat("0-9999,", 2000) + "1", "1,99999"} {
		var err error
		took := cputime.Of(t, func() {
			_, err = LoadOver([]string{"--hostname-override=n"}, &Over{Name: "ConfigMap ns/c", Document: []byte(header + "reservedSystemCPUs: '" + text + "'\n")})
		})
		if err == nil || !strings.Contains(err.Error(), "a list of processors") || took > time.Second {
			t.Errorf("%.20s: %.200v, after %v", text, err, took)
		}
	}
}
