package configgen

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// base is a test node's document, with values of which only it knows.
func base(t *testing.T) (document, own map[string]any) {
	t.Helper()
	return map[string]any{
			"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "imageGCHighThresholdPercent": 100, "address": "127.0.0.1", "serializeImagePulls": false, "failSwapOn": false, "failCgroupV1": false,
			"evictionHard": map[string]any{"memory.available": "50Mi"}, "evictionSoft": map[string]any{"memory.available": "60Mi"}, "evictionSoftGracePeriod": map[string]any{"memory.available": "1m"},
			"tlsCertFile": "/a.crt", "tlsPrivateKeyFile": "/a.key",
		}, map[string]any{
			"authentication.x509.clientCAFile": "/b", "tlsCertFile": "/b.crt", "tlsPrivateKeyFile": "/b.key", "imageServiceEndpoint": "unix:///b.sock", "resolvConf": "/b",
		}
}

func loadDocument(t *testing.T, fields map[string]any) (*kubeletconfig.Loaded, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k.yaml")
	if err := os.WriteFile(file, document(t, fields), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeletconfig.LoadAgain([]string{"--config=" + file, "--hostname-override=n"})
}

// TestEachFieldHasAnotherValueThatANodeMayHave: a new field has one, too. One after the
// other, and each by itself.
func TestEachFieldHasAnotherValueThatANodeMayHave(t *testing.T) {
	start, own := base(t)
	first, err := loadDocument(t, start)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := Fields(first.Fields(), own)
	if err != nil {
		t.Fatal(err)
	}
	if len(fields) != len(configslice.Effects()) {
		t.Errorf("%d fields of %d", len(fields), len(configslice.Effects()))
	}
	all := start
	for _, f := range fields {
		if f.Untried != "" || f.Path == "runOnce" { // which is no configuration
			continue
		}
		if configslice.Fixed()[f.Path] != "" {
			after := start
			for path, value := range f.Before { // at once, as none of them is taken
				after = Set(after, path, value)
			}
			wantChange(t, f, start, Set(after, f.Path, f.Value))
			continue
		}
		for _, was := range []map[string]any{start, all} {
			from := was
			for path, value := range f.Before {
				from = Set(from, path, value)
			}
			wantChange(t, f, from, Set(from, f.Path, f.Value))
			if all = was; !f.Back && !f.Machine {
				all = Set(from, f.Path, f.Value)
			}
		}
	}
}

// wantChange has the field among what differs between two documents.
func wantChange(t *testing.T, f Field, from, to map[string]any) {
	t.Helper()
	before, err := loadDocument(t, from)
	after, err2 := loadDocument(t, to)
	if err != nil || err2 != nil {
		if !f.Machine {
			t.Errorf("%s = %v: %v, %v", f.Path, f.Value, err, err2)
		}
		return
	}
	changes := configslice.Difference(before.Fields(), after.Fields())
	if !slices.ContainsFunc(changes, func(c configslice.Change) bool { return c.Path == f.Path }) {
		t.Errorf("%s = %v changes %v", f.Path, f.Value, changes)
	}
}

func TestASetFieldLeavesTheDocumentAndItsOtherFieldsAlone(t *testing.T) {
	was := map[string]any{"a": map[string]any{"b": 1, "c": 2}, "featureGates": map[string]any{"X": true}}
	kept := maps.Clone(was)
	now := Set(Set(was, "a.b", 3), "featureGates", map[string]any{"Y": false})
	if got := string(document(t, now)); got != "a:\n  b: 3\n  c: 2\nfeatureGates:\n  X: true\n  \"Y\": false\n" {
		t.Errorf("it is %q", got)
	}
	if string(document(t, was)) != string(document(t, kept)) {
		t.Errorf("the document is %v", was)
	}
}

func TestObservationsAreReadAsTheyWereWritten(t *testing.T) {
	got := Observed("# What: comment\nmaxPods: podsync started again; in /configz\n\na.b: refused: because\nno observation\n")
	if want := map[string]string{"maxPods": "podsync started again; in /configz", "a.b": "refused: because"}; !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestAFieldOfWhichNobodyKnowsAnotherValueIsNamed(t *testing.T) {
	if got, err := Fields(map[string]string{"newField": `"text"`}, nil); err == nil || !strings.Contains(err.Error(), "newField") {
		t.Errorf("%v, %v", got, err)
	}
}
