package kubeletconfig

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAURLIsShownWithoutWhatMayBeSecretInIt(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"https://pods.example/a":              "https://pods.example/a",
		"https://me:secret@pods.example:8/a":  "https://me:xxxxx@pods.example:8/a",
		"https://secret@pods.example/a":       "https://xxxxx@pods.example/a",
		"https://pods.example/a?token=secret": "https://pods.example/a?xxxxx",
		"https://pods.example/\x7fsecret":     "xxxxx",
	} {
		got := ShownURL(text)
		if got != want || ShownURL(got) != got {
			t.Errorf("%s is shown as %s, and that as %s; want %s", text, got, ShownURL(got), want)
		}
	}
}

// TestOnlyTheServiceThatAsksForManifestsHasTheirURLsPassword: the others are handed a
// configuration, and need none of it.
func TestOnlyTheServiceThatAsksForManifestsHasTheirURLsPassword(t *testing.T) {
	for name, args := range map[string][]string{
		"file": {"--config=" + write(t, t.TempDir(), "c.yaml", header+"staticPodURL: https://me:secret@pods.example/a?token=secret\n")},
		"flag": {"--manifest-url=https://me:secret@pods.example/a?token=secret"},
	} {
		whole := mustLoad(t, args...)
		if other := string(NewSlice(whole, 1, "x", false).Document); strings.Contains(other, "secret") || !strings.Contains(other, "pods.example/a") {
			t.Errorf("%s: %s", name, other)
		}
		if shown := whole.FlagValues()["manifest-url"]; strings.Contains(shown, "secret") {
			t.Errorf("%s: shown as %s", name, shown)
		}
		path := filepath.Join(t.TempDir(), "slice.json")
		if own := mustLoad(t, sliceOf(t, path, NewSlice(whole, 1, "x", true))); own.Config.StaticPodURL != whole.Config.StaticPodURL {
			t.Errorf("%s: podsync has %s", name, own.Config.StaticPodURL)
		}
	}
}
