package node_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/images"
)

// writerManifest is a pod that writes about a megabyte of log each second.
const writerManifest = `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: ` + images.BusyBox + `
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "while true; do head -c 200000 /dev/zero | tr '\\0' x | fold -w 100; echo; sleep 0.2; done"]
`

func TestTheLogOfAContainerThatWritesAllTheTimeIsRotatedAndCompressed(t *testing.T) {
	const limit, files = 1 << 20, 4
	h := build(t, plan{standalone: true, overrides: map[string]any{
		"containerLogMaxSize": "1Mi", "containerLogMaxFiles": files, "containerLogMonitorInterval": "3s",
	}})
	h.must(h.node.AddStaticPod("writer.yaml", writerManifest))
	var logs []string
	rotations, biggest := map[string]bool{}, int64(0)
	h.eventually(2*time.Minute, "the log is rotated five times and the older ones are compressed", func() error {
		logs, _ = filepath.Glob(filepath.Join(h.node.PodLogs, "*_writer-*", "c", "0.log*"))
		zipped, named := 0, 0
		for _, l := range logs {
			name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(l), ".tmp"), ".gz")
			if info, err := os.Lstat(l); err == nil {
				biggest = max(biggest, info.Size())
			}
			if name != "0.log" {
				rotations[name] = true
			}
			if strings.HasSuffix(l, ".gz") {
				zipped++
			}
			if !strings.HasSuffix(l, ".tmp") {
				named++
			}
		}
		// A file that is being exchanged for its compressed one is there twice.
		if named > files+1 {
			t.Errorf("%d files: %v", named, logs)
		}
		return boolError(len(rotations) >= 5 && zipped >= 1, "%d rotations, files %v", len(rotations), logs)
	})
	t.Logf("the biggest file had %d bytes", biggest)
	// A megabyte a second, and what the machine's other work delays.
	if biggest > limit+5<<20 {
		t.Errorf("a file had %d bytes with a limit of %d", biggest, limit)
	}
	for _, l := range logs {
		if !strings.HasSuffix(l, ".gz") {
			continue
		}
		f, err := os.Open(l)
		if os.IsNotExist(err) {
			continue // it was the oldest
		}
		h.must(err)
		z, err := gzip.NewReader(f)
		h.must(err)
		n, err := io.Copy(io.Discard, z)
		h.must(err)
		h.must(f.Close())
		if n < limit {
			t.Errorf("%s holds %d bytes, less than the limit at which a log is rotated", l, n)
		}
	}
}

// interval is the default of containerLogMonitorInterval.
const interval = 10 * time.Second

// A log is over its limit for no longer than one interval, so by no more than
// what is written in one, though nothing holds the container back; and nothing
// of the logs is left when the pod is gone.
func TestTheLogOfAContainerThatWritesAsFastAsItCanKeepsToItsLimitAndGoesWithThePod(t *testing.T) {
	const limit = 8 << 20
	h := build(t, plan{standalone: true, overrides: map[string]any{"containerLogMaxSize": "8Mi", "containerLogMaxFiles": 3}})
	h.addPod(staticPod("fast", images.TestApp, "logs"))
	logs := filepath.Join(h.node.PodLogs, "*_fast-*", "app")
	links := filepath.Join(filepath.Dir(h.node.PodLogs), "containers", "fast-*")
	rotated := map[string]os.FileInfo{}
	h.eventually(3*time.Minute, "the log is rotated six times", func() error {
		files, _ := filepath.Glob(filepath.Join(logs, "0.log.*"))
		for _, f := range files {
			if info, err := os.Lstat(f); err == nil && !strings.HasSuffix(f, ".gz") && !strings.HasSuffix(f, ".tmp") {
				rotated[filepath.Base(f)] = info
			}
		}
		return boolError(len(rotated) >= 6, "%d rotations", len(rotated))
	})
	names := slices.Sorted(maps.Keys(rotated)) // by time, which they have in their names
	for i := 1; i < len(names); i++ {
		was, is := rotated[names[i-1]], rotated[names[i]]
		took := is.ModTime().Sub(was.ModTime())
		over := time.Duration(float64(took) * (1 - limit/float64(is.Size())))
		t.Logf("%s: %d MiB in %s, over the limit for %s", names[i], is.Size()>>20, took.Round(time.Millisecond), over.Round(time.Millisecond))
		if is.Size() < limit || over > interval {
			t.Errorf("%s has %d bytes, written in %s: rotated at %d it would be over its limit for %s", names[i], is.Size(), took, limit, over)
		}
	}
	// Between the renaming of a log and its being opened anew there is no 0.log.
	h.eventually(time.Minute, "the link leads to the log", func() error {
		found, err := filepath.Glob(links)
		h.must(err)
		if len(found) != 1 {
			return fmt.Errorf("links to the log: %v", found)
		}
		target, err := filepath.EvalSymlinks(found[0])
		if err != nil {
			return err
		}
		return boolError(filepath.Base(target) == "0.log", "%s leads to %s", found[0], target)
	})

	h.must(h.removeStaticPod("fast.yaml"))
	h.eventually(time.Minute, "nothing of the logs is left", func() error {
		var errs []error
		for _, pattern := range []string{filepath.Join(h.node.PodLogs, "*_fast-*"), links} {
			left, err := filepath.Glob(pattern)
			h.must(err)
			for _, l := range left {
				errs = append(errs, fmt.Errorf("there is %s", l))
			}
		}
		return errors.Join(errs...)
	})
}
