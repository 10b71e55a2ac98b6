package node_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/harness/containerd"
)

// TestMain lets this binary be a network plugin too: containerd runs it by the
// name flakyPlugin.
func TestMain(m *testing.M) {
	if command := os.Getenv("CNI_COMMAND"); command != "" && filepath.Base(os.Args[0]) == flakyPlugin {
		if err := flaky(command, os.Stdin, os.Stdout); err != nil {
			_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "1.0.0", "code": 100, "msg": err.Error()})
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	flakyPlugin = "flaky"
	// failures is how often it does not take the network of a sandbox down.
	failures = 2
)

// flaky is the last plugin of the chain, and so the first that takes a network
// down: it fails a few times for each sandbox.
func flaky(command string, in io.Reader, out io.Writer) error {
	var conf struct {
		CNIVersion string          `json:"cniVersion"`
		PrevResult json.RawMessage `json:"prevResult"`
		Dir        string          `json:"dir"`
	}
	if err := json.NewDecoder(in).Decode(&conf); err != nil {
		return err
	}
	switch command {
	case "VERSION":
		return json.NewEncoder(out).Encode(map[string]any{"cniVersion": "1.0.0", "supportedVersions": []string{"1.0.0"}})
	case "ADD":
		_, err := out.Write(conf.PrevResult)
		return err
	case "DEL":
		// Each attempt appends one byte: a reader never sees fewer than there were.
		file, err := os.OpenFile(filepath.Join(conf.Dir, os.Getenv("CNI_CONTAINERID")), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := file.Write([]byte{'.'}); err != nil {
			return err
		}
		attempts, err := file.Stat()
		if err != nil {
			return err
		}
		if attempts.Size() <= failures {
			return fmt.Errorf("the network's controller does not answer")
		}
	}
	return nil
}

// addFlaky puts the plugin at the end of the instance's chain.
func (h *house) addFlaky() (dir string) {
	h.Helper()
	self, err := os.Executable()
	h.must(err)
	plugins, dir := containerd.PluginDir(h.inst), h.inst.Path("cni-failures")
	h.must(os.MkdirAll(plugins, 0o755))
	h.must(os.MkdirAll(dir, 0o755))
	h.must(os.Symlink(self, filepath.Join(plugins, flakyPlugin)))
	files, err := filepath.Glob(filepath.Join(h.inst.Path("cni"), "*.conflist"))
	h.must(err)
	if len(files) != 1 {
		h.Fatalf("network configurations %q, want one", files)
	}
	data, err := os.ReadFile(files[0])
	h.must(err)
	var chain map[string]any
	h.must(json.Unmarshal(data, &chain))
	chain["plugins"] = append(chain["plugins"].([]any), map[string]any{"type": flakyPlugin, "dir": dir})
	data, err = json.Marshal(chain)
	h.must(err)
	h.must(os.WriteFile(files[0], data, 0o644))
	return dir
}

// leases are the addresses that the network has given out.
func (h *house) leases() (ips []string) {
	h.Helper()
	err := filepath.WalkDir(h.inst.Path("ipam"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Count(filepath.Base(path), ".") == 3 {
			ips = append(ips, filepath.Base(path))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	return ips
}

// A sandbox whose network was not taken down is stopped again until it is, and
// only then the pod's object goes.
func TestANetworkThatIsNotTakenDownAtOnceIsTakenDownLater(t *testing.T) {
	if v := containerd.Version(os.Getenv("POLYLET_TEST_CONTAINERD")); v != "" && v != containerd.Built {
		t.Skip("this containerd has one directory of plugins")
	}
	var failed string
	h := build(t, plan{noRuntime: true, prepare: func(h *house) {
		failed = h.addFlaky()
		h.must(h.runtime.Process.Start(h.ctx))
	}})
	attempts := func() (n int) {
		files, err := os.ReadDir(failed)
		h.must(err)
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(failed, f.Name()))
			h.must(err)
			n += len(data)
		}
		return n
	}
	deleted, ended := app("deleted", "sleep"), app("ended", "exit", "after=1s")
	deleted.Spec.TerminationGracePeriodSeconds = ptr(int64(2))
	ended.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, p := range []*corev1.Pod{deleted, ended} {
		before := attempts()
		h.create(p)
		if p == deleted {
			h.waitReady(p.Name, time.Minute)
			if len(h.leases()) != 1 {
				t.Errorf("addresses in use: %q", h.leases())
			}
			h.delete(p.Name)
			h.waitGone(p.Name, 3*time.Minute)
			// containerd stops a sandbox once more when it is removed, which follows.
			if left := h.leases(); len(left) > 0 || attempts()-before <= failures {
				t.Errorf("the object is gone after %d attempts, addresses in use: %q", attempts()-before, left)
			}
			continue
		}
		h.eventually(3*time.Minute, "the network of the pod that ended by itself is down", func() error {
			return boolError(attempts()-before > failures && len(h.leases()) == 0, "after %d attempts, addresses in use: %q", attempts()-before, h.leases())
		})
		h.eventually(time.Minute, "the pod that ended by itself has succeeded", func() error {
			got, err := h.pod(p.Name)
			if err != nil {
				return err
			}
			return boolError(got.Status.Phase == corev1.PodSucceeded, "phase %s", got.Status.Phase)
		})
	}
}
