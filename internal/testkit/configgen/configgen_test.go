package configgen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// TestEachChangeIsWhatItSays: one after the other on a file, as a node's operator writes
// them; what is not taken does not stay.
func TestEachChangeIsWhatItSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "k.yaml")
	load := func(text []byte) (*kubeletconfig.Loaded, error) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return kubeletconfig.LoadAgain([]string{"--config=" + file, "--hostname-override=n"})
	}
	fields := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "imageGCHighThresholdPercent": 100, "serializeImagePulls": false}
	before, err := load(document(t, fields))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Kind]int{}
	for seed := range uint64(5) {
		g := New(seed)
		for range 150 {
			c := g.Next()
			seen[c.Kind]++
			text := []byte(c.Text)
			if c.Field != "" {
				text = document(t, c.With(fields))
			}
			after, err := load(text)
			refusal := err
			if err == nil {
				refusal = configslice.Refusal(configslice.Difference(before.Fields(), after.Fields()))
			}
			switch {
			case (c.Kind == Invalid) != (err != nil), (c.Kind == Taken) != (refusal == nil):
				t.Fatalf("%s: %v", c, refusal)
			case refusal != nil && !strings.Contains(refusal.Error(), c.Named):
				t.Fatalf("%s: no %q in %v", c, c.Named, refusal)
			case c.Kind == Taken:
				fields, before = c.With(fields), after
			}
		}
	}
	for _, kind := range []Kind{Taken, Invalid, Fixed} {
		if seen[kind] < 30 {
			t.Errorf("%d are %s", seen[kind], kind)
		}
	}
}

func TestASeedMakesTheSameChangesAgain(t *testing.T) {
	a, b, other := New(7), New(7), New(8)
	same := true
	for range 50 {
		x := a.Next().String()
		if y := b.Next().String(); x != y {
			t.Fatalf("%s and %s", x, y)
		}
		same = same && x == other.Next().String()
	}
	if same {
		t.Error("another seed makes the same ones")
	}
	if n := New(1).IntN(3); n < 0 || n > 2 {
		t.Errorf("%d", n)
	}
}

func document(t *testing.T, fields map[string]any) []byte {
	t.Helper()
	out, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
