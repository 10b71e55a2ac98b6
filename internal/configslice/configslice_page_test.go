package configslice

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/testkit/configgen"
	"github.com/polylet/polylet/internal/testkit/golden"
)

// A gate that another service uses is observed anew: else a node test that draws it fails one day.
func TestWhatWasObservedOfAGateIsWhoUsesItNow(t *testing.T) {
	seen, err := os.ReadFile("../../docs/configuration-observed.txt")
	if err != nil {
		t.Fatal(err)
	}
	checked, observed := 0, configgen.Observed(string(seen))
	_, _, gates := kubeletconfig.Effects()
	for gate, e := range gates {
		row := observed[kubeletconfig.GatePrefix+gate]
		if row == "" || strings.HasPrefix(row, "refused") {
			continue
		}
		checked++
		want := "nothing started again"
		if e.State == kubeletconfig.Used {
			want = e.Who + " started again"
		}
		if !strings.HasPrefix(row, want) {
			t.Errorf("%s: %s; it is to be %q: make observed", gate, row, want)
		}
	}
	if checked < 20 {
		t.Errorf("only %d gates are checked", checked)
	}
}

// TestThePageOfTheConfigurationHasEachField: -update writes the table anew. What was
// observed a node test has written (make observed).
func TestThePageOfTheConfigurationHasEachField(t *testing.T) {
	const page = "../../docs/configuration.md"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := os.ReadFile("../../docs/configuration-observed.txt")
	if err != nil {
		t.Fatal(err)
	}
	const begin = "\n| field | default |"
	text, _, _ := strings.Cut(string(raw), begin)
	var b strings.Builder
	b.WriteString(begin + " check | used by | changes | from the cluster | observed |\n|---|---|---|---|---|---|---|\n")
	others := map[string]any{}
	fields, err := configgen.Fields(fieldsOf(t, ""), map[string]any{"authentication.x509.clientCAFile": "/", "imageServiceEndpoint": "/", "resolvConf": "/", "tlsCertFile": "/", "tlsPrivateKeyFile": "/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		others[f.Path] = f.Value
	}
	effects, defaults, observed := Effects(), fieldsOf(t, ""), configgen.Observed(string(seen))
	for _, path := range slices.Sorted(maps.Keys(effects)) {
		value := "`" + inCell(defaults[path]) + "`"
		if defaults[path] == "null" {
			value = "none"
		}
		cluster := "no"
		if slices.Contains(OfCluster(), path) {
			cluster = "yes"
		}
		if observed[path] == "" {
			t.Errorf("nobody has observed what becomes of %s on a running node: make observed", path)
		}
		who, how := usedAndChanges(path, effects[path])
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", path, value, inCell(checkOf(t, path, defaults[path], others[path])), who, how, cluster, inCell(observed[path]))
	}
	for path := range observed {
		if _, known := effects[path]; !known {
			t.Errorf("%s was observed and is no field any more: make observed", path)
		}
	}
	golden.Equal(t, page, []byte(strings.TrimRight(text, "\n")+"\n"+b.String()))
}

func inCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// usedAndChanges say who uses a field, and how it changes.
func usedAndChanges(path string, effect kubeletconfig.Effect) (who, how string) {
	owners, _ := Owners(path)
	who, how = strings.Join(owners, ", "), "live"
	switch {
	case effect.Who == "loading":
		who = "whoever reads the files"
	case len(owners) == 0:
		who = "nobody: " + effect.Who
	}
	if slices.Contains(InPlace(), path) {
		how = "in place"
	}
	if reason := Fixed()[path]; reason != "" {
		how = "not while the node runs: " + reason
	}
	return who, how
}

// checkOf is what validation says that a field may be, when it is given what it may not; of
// one that may be all of its type, the type. other is a value of one that has none.
func checkOf(t *testing.T, path, value string, other any) string {
	t.Helper()
	var now any
	if err := json.Unmarshal([]byte(value), &now); err != nil {
		t.Fatal(err)
	}
	if now == nil {
		now = other
	}
	kind, absurd := kindOf(now)
	file := filepath.Join(t.TempDir(), "c.yaml")
	document := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
	mend := regexp.MustCompile(`(?m)^(?:failed to validate kubelet configuration: )?` + regexp.QuoteMeta(path) + `(?:[.\[][^:]*)?: invalid value .*?: (.+)$`)
	for _, wrong := range absurd {
		text, err := yaml.Marshal(configgen.Set(document, path, wrong))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = kubeletconfig.LoadAgain([]string{"--config=" + file, "--hostname-override=n"})
		if err == nil {
			continue
		}
		// What only this machine does not do is no check of the field.
		if m := mend.FindStringSubmatch(err.Error()); m != nil && !strings.Contains(m[1], "cgroup v1") {
			return m[1]
		}
	}
	return kind
}

// kindOf is what a field of this value may be, as far as its type says, and values of that
// type that make no sense.
func kindOf(value any) (kind string, absurd []any) {
	switch v := value.(type) {
	case bool:
		return "true or false", []any{!v}
	case float64, int:
		return "a number", []any{-2, 4_000_000_000, 2_000_000_000}
	case []any:
		return "a list", []any{[]any{"nonsense"}, []any{-2}, []any{map[string]any{"key": "a", "effect": "nonsense"}}}
	case map[string]any:
		return "a map", []any{map[string]any{"nonsense": "nonsense"}}
	case string:
		if _, err := time.ParseDuration(v); err == nil && v != "0" {
			return "a duration", []any{"-1s", "1ns", "2000h"}
		}
		if _, err := resource.ParseQuantity(v); err == nil {
			return "a quantity", []any{"nonsense"}
		}
	}
	return "text", []any{"no\u00e9/such:thing"}
}
