package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheUnitsAreValidForSystemd has systemd itself read the units, with this
// test's own program in the place of /usr/bin/polylet, which need not be there.
func TestTheUnitsAreValidForSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is not there; make unit installs it, and without it nothing checks the units")
		}
		t.Skip("systemd is not installed; make unit installs it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../deploy/systemd/*.*")
	if err != nil {
		t.Fatal(err)
	}
	dir, units := t.TempDir(), []string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		switch filepath.Ext(file) {
		case ".slice", ".socket", ".service", ".path":
			copied := filepath.Join(dir, filepath.Base(file))
			text := strings.ReplaceAll(string(raw), "/usr/bin/polylet ", self+" ")
			if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			units = append(units, copied)
		}
	}
	if len(units) < 13 {
		t.Fatalf("only %d units", len(units))
	}
	cmd := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, units...)...)
	out, err := cmd.CombinedOutput()
	if err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestEveryUnitStartsACommandThatExists reads the command lines.
func TestEveryUnitStartsACommandThatExists(t *testing.T) {
	files, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d services, %v", len(files), err)
	}
	have := map[string]bool{}
	for _, c := range newRootCommand().Commands() {
		have[c.Name()] = true
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(raw), "ExecStart=/usr/bin/polylet ")
		command, _, _ := strings.Cut(rest, " ")
		if !ok || !have[command] || filepath.Base(file) != "polylet-"+command+".service" {
			t.Errorf("%s starts %q", file, command)
		}
	}
}

// TestStatsIsBoundedWhereverItRuns: what measures must not become what is to be measured.
func TestStatsIsBoundedWhereverItRuns(t *testing.T) {
	for file, limits := range map[string][]string{
		"../../deploy/systemd/polylet-stats.service": {"\nMemoryMax=256M\n", "\nCPUQuota=100%\n", "\nEnvironment=GOMEMLIMIT=200MiB\n"},
		"../../deploy/compose/compose.yaml":          {"\n    mem_limit: 256m\n", "\n    cpus: 1.0\n", "GOMEMLIMIT=200MiB"},
	} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range limits {
			if !strings.Contains(string(raw), limit) {
				t.Errorf("%s does not have %q", file, strings.TrimSpace(limit))
			}
		}
	}
}
