package node_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/node"
)

const (
	// largeLog is how many bytes the log file of the test has.
	largeLog = 1 << 30
	// largeLogMemory bounds how much a process may take beyond what it had, at
	// any moment of a reading.
	largeLogMemory = 32 << 20
)

// TestALogOf1GiBIsReadToItsLastByteInConstantMemory also says how fast it was,
// which is to be compared with the same test's word on the kubelet.
func TestALogOf1GiBIsReadToItsLastByteInConstantMemory(t *testing.T) {
	h := build(t, plan{standalone: true, overrides: map[string]any{"containerLogMaxSize": "4Gi"}})
	h.must(h.node.AddStaticPod("big.yaml", staticManifest("big", "sleep")))
	var file string
	h.eventually(time.Minute, "the container has a log", func() error {
		logs, err := filepath.Glob(filepath.Join(h.node.PodLogs, "*_big-*", "app", "0.log"))
		if err != nil || len(logs) != 1 {
			return fmt.Errorf("%v, %w", logs, err)
		}
		file = logs[0]
		return nil
	})
	target := h.node.URL + "/containerLogs/default/big-" + nodeName + "/app"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}} //nolint:gosec // the node's own certificate
	h.eventually(time.Minute, "its log can be read", func() error {
		_, err := h.readLog(client, target, crc32.New(crc32.MakeTable(crc32.Castagnoli)))
		return err
	})
	want, lines := h.fillLog(file)
	peaks := h.watchMemory()
	for range 2 {
		got := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		began := time.Now()
		n, err := h.readLog(client, target, got)
		took := time.Since(began)
		if err != nil || string(got.Sum(nil)) != string(want) {
			t.Fatalf("%d bytes came, %v; they are not those of the log", n, err)
		}
		t.Logf("%d lines, %d bytes of a file of %d, in %s: %.1f MiB of the file a second", lines, n, int64(largeLog), took.Round(time.Millisecond), float64(largeLog)/took.Seconds()/(1<<20))
	}
	peaks()
}

// fillLog appends lines of usual length in the runtime's format, as the runtime
// does, and returns the hash of what a client shall get.
func (h *house) fillLog(file string) (want []byte, lines int) {
	h.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	h.must(err)
	out, sum := bufio.NewWriterSize(f, 1<<20), crc32.New(crc32.MakeTable(crc32.Castagnoli))
	at := time.Date(2026, 11, 21, 10, 0, 0, 1, time.UTC)
	for written := 0; written < largeLog; lines++ {
		message := fmt.Sprintf("%09d %s\n", lines, strings.Repeat("x", 20+lines%120))
		n, err := out.WriteString(at.Add(time.Duration(lines)*time.Microsecond).Format("2006-01-02T15:04:05.000000000Z07:00") + " stdout F " + message)
		h.must(err)
		written += n
		_, err = sum.Write([]byte(message))
		h.must(err)
	}
	h.must(out.Flush())
	h.must(f.Close())
	return sum.Sum(nil), lines
}

// readLog reads an answer to its end into sum.
func (h *house) readLog(client *http.Client, target string, sum hash.Hash) (int64, error) {
	req, err := http.NewRequestWithContext(h.ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	n, err := io.Copy(sum, res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return n, err
}

// watchMemory forgets the peaks so far of what reads and passes on logs; the
// function that it returns compares the new ones.
func (h *house) watchMemory() (compare func()) {
	h.Helper()
	names := []string{node.Podsync, node.Gateway}
	if onKubelet() {
		names = []string{"kubelet"}
	}
	before := map[string]int64{}
	for _, name := range names {
		pid := h.node.Processes[name].Pid()
		h.must(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)) // forgets VmHWM
		before[name] = h.memory(pid, "VmRSS:")
	}
	return func() {
		h.Helper()
		for _, name := range names {
			peak := h.memory(h.node.Processes[name].Pid(), "VmHWM:")
			h.Logf("%s had %d MiB before and %d at its peak", name, before[name]>>20, peak>>20)
			if peak-before[name] > largeLogMemory && !onKubelet() {
				h.Errorf("%s took %d MiB more for a log of %d MiB, want at most %d", name, (peak-before[name])>>20, largeLog>>20, largeLogMemory>>20)
			}
		}
	}
}

// memory is a line of /proc/PID/status that ends with kB, in bytes.
func (h *house) memory(pid int, field string) int64 {
	h.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	h.must(err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			h.must(err)
			return kilobytes << 10
		}
	}
	h.Fatalf("the status of process %d has no %s", pid, field)
	return 0
}
