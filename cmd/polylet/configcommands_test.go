package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/daemon"
)

const aConfiguration = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// commanded runs polylet and returns all that it wrote.
func commanded(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesAreValidatedEachByItselfWithTheFlagsOnTop(t *testing.T) {
	good := written(t, "good.yaml", aConfiguration+"volumePluginDir: /x\n")
	bad := written(t, "bad.yaml", aConfiguration+"maxPods: -7\n")
	drops := filepath.Dir(written(t, "10.conf", aConfiguration+"maxPods: 7\n"))
	if out, err := commanded(t, "config", "validate", good, drops); err != nil || !strings.Contains(out, good+": valid\n  volumePluginDir: \"/x\" has no effect yet") || !strings.Contains(out, drops+": valid") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := commanded(t, "config", "validate", good, bad, good+".none"); err == nil || !strings.Contains(out, bad+": ") || !strings.Contains(out, "maxPods") || !strings.Contains(err.Error(), bad+", "+good+".none") || strings.Contains(err.Error(), good+",") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := commanded(t, "config", "validate", good, "--", "--max-pods=-1"); err == nil || !strings.Contains(out, "maxPods") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestADifferenceSaysWhoStartsAgainAndItsExitCodeWhetherItCan(t *testing.T) {
	pods := configslice.Change{Path: "maxPods", Old: "1", New: "2", Owners: []string{"podsync", "nodestatus"}}
	driver := configslice.Change{Path: "cgroupDriver", Old: "a", New: "b", Refused: "drain the node"}
	for name, tc := range map[string]struct {
		changes []configslice.Change
		origins map[string]string
		code    int
		want    string
	}{
		"nothing":       {nil, nil, 0, ""},
		"a flag's":      {[]configslice.Change{pods}, map[string]string{"maxPods": "flag --max-pods"}, 0, "maxPods stays 1: flag --max-pods goes before the file"},
		"live":          {[]configslice.Change{pods}, map[string]string{"maxPods": "file /x"}, exitDiffers, "podsync, nodestatus"},
		"not while run": {[]configslice.Change{driver, pods}, nil, exitRefused, "refused: drain the node"},
	} {
		var out bytes.Buffer
		err := showDifference(&out, &out, tc.changes, tc.origins)
		var exit daemon.ExitError
		if errors.As(err, &exit); exit.Code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
	}
}

func TestAFieldIsExplainedWithoutANode(t *testing.T) {
	dir := "--socket-dir=" + t.TempDir()
	for field, want := range map[string]string{
		"maxPods":       "changes  live; podsync, nodestatus start again",
		"cgroupDriver":  "changes  not while the node runs: the cgroups",
		"hairpinMode":   "effect   none: ",
		"syncFrequency": "effect   a part: ",
		"enableServer":  "default  true",
		"logging.forma": "",
	} {
		out, err := commanded(t, "config", "explain", field, dir)
		if field == "logging.forma" {
			if err == nil || !strings.Contains(err.Error(), "logging.format") {
				t.Errorf("a field that is not there: %v", err)
			}
			continue
		}
		if err != nil || !strings.Contains(out, want) || !strings.Contains(out, "not known: no socket") {
			t.Errorf("%s: %v\n%s", field, err, out)
		}
	}
}

func TestAPersonsWishReachesPolyletRunOnceByAFileOfRoots(t *testing.T) {
	root := t.TempDir()
	if _, err := commanded(t, "config", "rollback", "--root-dir="+root); err == nil || !strings.Contains(err.Error(), "--root-dir") {
		t.Errorf("where nothing is kept: %v", err)
	}
	if err := os.MkdirAll(keptDir(root), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"rollback": requestRollback, "retry": requestRetry} {
		if _, err := commanded(t, "config", command, "--root-dir="+root); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(keptDir(root), requestFile)
		if raw, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(raw)) != want {
			t.Errorf("%s asks %q, %v", command, raw, err)
		}
		if got := takeRequest(path, time.Now()); got != want {
			t.Errorf("%s is taken as %q", command, got)
		}
		if got := takeRequest(path, time.Now()); got != "" {
			t.Errorf("%s is taken twice: %q", command, got)
		}
	}
}

func TestAWishOfLongAgoIsNotServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), requestFile)
	if err := os.WriteFile(path, []byte(requestRollback), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * oldWish)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if got := takeRequest(path, time.Now()); got != "" {
		t.Errorf("polylet run was away for long, and does %q when it comes", got)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it stays: %v", err)
	}
}
