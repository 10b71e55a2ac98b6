package node_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
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
