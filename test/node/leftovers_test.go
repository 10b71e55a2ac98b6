package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/node"
)

// leftovers are what pods have on a node, by what it is.
type leftovers map[string][]string

// leftovers lists what is there of pods now.
func (h *house) leftovers() leftovers {
	h.Helper()
	out := leftovers{}
	sandboxes, err := h.runtime.Runtime().ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	h.must(err)
	for _, s := range sandboxes.GetItems() {
		out["sandbox"] = append(out["sandbox"], s.GetMetadata().GetName()+" "+s.GetState().String())
	}
	containers, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	h.must(err)
	for _, c := range containers.GetContainers() {
		out["container"] = append(out["container"], c.GetMetadata().GetName()+" "+c.GetState().String())
	}
	mounts, err := h.inst.Mounts()
	h.must(err)
	for _, m := range mounts {
		if strings.HasPrefix(m, h.node.RootDir+"/pods/") || strings.HasPrefix(m, h.inst.Path("state")+"/") {
			out["mount"] = append(out["mount"], m)
		}
	}
	out["cgroup"] = h.podCgroups()
	for what, pattern := range map[string]string{
		"pod directory":     h.node.RootDir + "/pods/*",
		"log directory":     h.node.PodLogs + "/*",
		"log symlink":       filepath.Dir(h.node.PodLogs) + "/containers/*",
		"address":           h.inst.Path("ipam") + "/*/*.*.*.*",
		"bridge port":       "/sys/class/net/" + h.inst.Bridge() + "/brif/*",
		"intention to pull": h.node.RootDir + "/image_manager/pulling/*",
	} {
		found, err := filepath.Glob(pattern)
		h.must(err)
		out[what] = found
	}
	return out
}

// unstickRuntime starts containerd again when it has lost track of containers: a
// start whose caller is killed at the wrong moment leaves a task behind that no
// call of the CRI can remove (containerd issue 11037, open), whoever the caller
// is. What is left of other pods is left to be found.
func (h *house) unstickRuntime() {
	h.Helper()
	var stuck map[string]string
	for range 60 {
		l := h.leftovers()
		if l.err(nil) == nil {
			return
		}
		if stuck = h.stuckPods(); len(stuck) > 0 && l.onlyOf(stuck) {
			break
		}
		h.until(time.Now().Add(time.Second))
	}
	if len(stuck) == 0 {
		return
	}
	h.Logf("containerd cannot remove containers of %v any more (its issue 11037); it is started again", stuck)
	h.runtime.Process.Stop()
	h.must(h.runtime.Process.Start(h.ctx))
}

// stuckPods are the pods, by UID, whose containers containerd cannot remove.
func (h *house) stuckPods() map[string]string {
	h.Helper()
	said, err := os.ReadFile(h.runtime.Process.LogFile())
	h.must(err)
	containers, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	h.must(err)
	out := map[string]string{}
	for _, c := range containers.GetContainers() {
		if strings.Contains(string(said), "cannot delete running task "+c.GetId()) {
			out[c.GetLabels()["io.kubernetes.pod.uid"]] = c.GetLabels()["io.kubernetes.pod.name"]
		}
	}
	return out
}

// onlyOf says whether the directories and cgroups that are left are of these pods.
func (l leftovers) onlyOf(pods map[string]string) bool {
	for _, what := range []string{"pod directory", "log directory", "cgroup"} {
		for _, path := range l[what] {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(pods)), func(uid string) bool { return strings.Contains(path, uid) }) {
				return false
			}
		}
	}
	return true
}

// podCgroups are the cgroups of pods in all hierarchies.
func (h *house) podCgroups() (found []string) {
	h.Helper()
	roots, err := h.inst.Cgroups()
	h.must(err)
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // gone meanwhile
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), "pod") && strings.Contains(path, "/kubepods/") {
				found = append(found, path)
				return fs.SkipDir
			}
			return nil
		})
		h.must(err)
	}
	return found
}

// err names everything that is there, and those of the network namespaces that
// still are.
func (l leftovers) err(namespaces []string) error {
	var errs []error
	for what, list := range l {
		for _, one := range list {
			errs = append(errs, fmt.Errorf("%s %s", what, one))
		}
	}
	for _, path := range namespaces {
		if _, err := os.Stat(path); err == nil {
			errs = append(errs, fmt.Errorf("network namespace %s", path))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (l leftovers) want(h *house, when string) {
	h.Helper()
	if err := l.err(nil); err != nil {
		h.Fatalf("%s there is: %v", when, err)
	}
}

// witness notes the network namespaces of all sandboxes that there ever were;
// afterwards nobody could tell whose one is.
type witness struct {
	mu    sync.Mutex
	paths map[string]string // by sandbox
	end   chan struct{}
	done  sync.WaitGroup
}

func (h *house) watchNamespaces() *witness {
	w := &witness{paths: map[string]string{}, end: make(chan struct{})}
	w.done.Go(func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			w.look(h)
			select {
			case <-w.end:
				return
			case <-ticker.C:
			}
		}
	})
	return w
}

func (w *witness) look(h *house) {
	list, err := h.runtime.Runtime().ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return // the next look tells
	}
	for _, s := range list.GetItems() {
		w.mu.Lock()
		_, known := w.paths[s.GetId()]
		w.mu.Unlock()
		if known {
			continue
		}
		st, err := h.runtime.Runtime().PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId(), Verbose: true})
		if err != nil {
			continue
		}
		if path := namespaceOf(st.GetInfo()["info"]); path != "" {
			w.mu.Lock()
			w.paths[s.GetId()] = path
			w.mu.Unlock()
		}
	}
}

// namespaceOf finds the network namespace in what containerd tells of a sandbox.
func namespaceOf(info string) string {
	var told struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if json.Unmarshal([]byte(info), &told) != nil {
		return ""
	}
	for _, n := range told.RuntimeSpec.Linux.Namespaces {
		if n.Type == "network" {
			return n.Path
		}
	}
	return ""
}

func (w *witness) stop() {
	close(w.end)
	w.done.Wait()
}

func (w *witness) namespaces() (paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range w.paths {
		paths = append(paths, path)
	}
	if len(paths) == 0 {
		paths = append(paths, "/proc/self") // none seen at all: say so
	}
	return paths
}

// size is how many goroutines and open files a process has.
type size struct{ goroutines, files int }

func (h *house) sizes() map[string]size {
	h.Helper()
	out := map[string]size{}
	count := regexp.MustCompile(`goroutine profile: total (\d+)`)
	for _, name := range node.Services() {
		var body string
		h.quietly(time.Minute, name+" shows its goroutines", func() (err error) {
			body, err = h.nodeAPI("/debug/pprof/" + name + "/goroutine?debug=1")
			return err
		})
		found := count.FindStringSubmatch(body)
		if len(found) != 2 {
			h.Fatalf("%s: no number of goroutines in %.200q", name, body)
		}
		n, err := strconv.Atoi(found[1])
		h.must(err)
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.node.Processes[name].Pid()))
		h.must(err)
		out[name] = size{n, len(files)}
	}
	return out
}

// grown names the processes that have more goroutines or open files than
// before, beyond what connections that come and go explain.
func grown(before, after map[string]size) error {
	const slack = 12
	var errs []error
	for name, was := range before {
		if is := after[name]; is.goroutines > was.goroutines+slack || is.files > was.files+slack {
			errs = append(errs, fmt.Errorf("%s has %d goroutines and %d open files, had %d and %d", name, is.goroutines, is.files, was.goroutines, was.files))
		}
	}
	return errors.Join(errs...)
}

// bareID is a container id of a status without the runtime's name.
func bareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}
