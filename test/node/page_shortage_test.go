package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/harness/browser"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/registry"
)

// shownDisk is the size of the disk of all that the node has, of which half has to be
// left, in MiB.
const shownDisk = 1000

// told is what polylet explain node -o json says, as far as it is compared.
type told struct{ Decisions []toldDecision }

type toldDecision struct {
	Outcome, Why, Chosen, ChosenUID string
	Shortage                        struct {
		Signal, Threshold, Available string
		Since                        time.Time
	}
	Reclaimed  *struct{ Containers, Images int }
	Candidates []struct{ Pod string }
}

// A pod fills a disk of the node's own, and what is said of that is the same on the page,
// which a browser shows, and on the command line.
func TestARealShortageStandsOnThePageAsPolyletExplainsIt(t *testing.T) {
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	h := build(t, plan{noRuntime: true, pageAddress: address, overrides: map[string]any{
		"evictionHard":                     map[string]any{"memory.available": "50Mi", "nodefs.available": "50%"},
		"evictionPressureTransitionPeriod": "2s", "volumeStatsAggPeriod": "1s",
		"imageGCHighThresholdPercent": 100, "imageMinimumGCAge": "1s",
	}, prepare: func(h *house) {
		all := h.inst.Path("disk")
		h.must(os.MkdirAll(all, 0o755))
		h.must(unix.Mount("disk", all, "tmpfs", 0, fmt.Sprintf("size=%dm", shownDisk)))
		for _, dir := range []string{"kubelet", "root"} {
			h.must(os.MkdirAll(all+"/"+dir, 0o755))
			h.must(os.MkdirAll(h.inst.Path(dir), 0o755))
			h.must(unix.Mount(all+"/"+dir, h.inst.Path(dir), "", unix.MS_BIND, ""))
		}
		h.must(h.runtime.Process.Start(h.ctx))
		image, err := random.Image(5<<20, 1)
		h.must(err)
		h.must(h.images.Push(h.ctx, "unused:v1", image))
		h.pullBehindTheNode(registry.LocalName + "/unused:v1")
	}})
	h.must(install.Browser(h.ctx, os.Stderr))
	b, err := browser.Start(h.ctx, browser.Config{Dir: t.TempDir()})
	h.must(err)
	t.Cleanup(b.Close)
	h.must(b.Open(h.ctx, "http://"+address+"/"))
	page := &view{h, b}
	h.create(withScratch(app("small", "take", "mebibytes=5", "path=/scratch/file"), ""))
	h.waitReady("small", time.Minute)
	page.counts("the node is short of nothing", "#short-section[hidden]", 1)
	// A shortage is over after seconds: all that stands under it is kept.
	h.must(b.Eval(h.ctx, "{ window.stood = new Set(); new MutationObserver(() => document.querySelectorAll('#short li').forEach((li) => window.stood.add(li.innerText)))"+
		".observe(document.getElementById('short'), { subtree: true, childList: true, characterData: true }); 0 }", nil))

	h.create(withScratch(app("hog", "take", fmt.Sprintf("mebibytes=%d", shownDisk*6/10), "path=/scratch/file"), ""))
	h.wantEvicted("hog", `The node was low on resource: ephemeral-storage\. .*`, true)
	page.shows("what was decided", "evicted default/hog")
	hog, err := h.pod("hog")
	h.must(err)
	h.wantExplained(page, hog)
	page.eventually("it has shown what was short and since when", func() error {
		var stood []string
		err := b.Eval(h.ctx, "[...window.stood]", &stood)
		return boolError(err == nil && slices.ContainsFunc(stood, func(s string) bool {
			return strings.Contains(s, "nodefs.available") && strings.Contains(s, "left, the hard threshold is 500Mi") && strings.Contains(s, "for ")
		}), "%q: %v", stood, err)
	})
	page.shows("that it is over", "Of nothing now.")
	if p, err := h.pod("small"); err != nil || !isReady(p) {
		t.Errorf("the pod that uses little: %v, %s", err, describe(p))
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the browser complains: %v", problems)
	}
}

// wantExplained compares what the page shows of a pod's eviction with what the command
// line does.
func (h *house) wantExplained(page *view, hog *corev1.Pod) {
	h.Helper()
	out, err := h.polylet("explain", "node", "-o", "json")
	h.must(err)
	var said told
	h.must(json.Unmarshal([]byte(out), &said))
	i := slices.IndexFunc(said.Decisions, func(d toldDecision) bool {
		return d.Outcome == "evicted" && d.ChosenUID == string(hog.UID)
	})
	if i < 0 {
		h.Fatalf("it does not explain who was evicted:\n%s", out)
	}
	d := said.Decisions[i]
	if d.Reclaimed == nil || d.Reclaimed.Images < 1 || len(d.Candidates) < 2 || d.Candidates[0].Pod != "default/hog" || d.Shortage.Since.Before(hog.CreationTimestamp.Time) {
		h.Errorf("the decision: %+v", d)
	}
	h.must(page.b.Eval(h.ctx, "document.querySelectorAll('#decisions details').forEach((d) => { d.open = true; }); 0", nil))
	wants := []string{
		d.Shortage.Signal, fmt.Sprintf("%s left, the hard threshold is %s; it was short for", d.Shortage.Available, d.Shortage.Threshold),
		fmt.Sprintf("evicted %s (it has 1 s to end): %s", d.Chosen, d.Why), fmt.Sprintf("reclaimed %d containers, %d images", d.Reclaimed.Containers, d.Reclaimed.Images),
		fmt.Sprintf("%d pods were considered", len(d.Candidates)),
	}
	for _, c := range d.Candidates {
		wants = append(wants, c.Pod)
	}
	page.shows("the same", wants...)
	var since time.Time
	h.must(page.b.Eval(h.ctx, fmt.Sprintf("fetch('api/overview').then((a) => a.json()).then((o) => o.shortages.decisions.find((d) => d.outcome === 'evicted' && d.chosen.uid === %q).shortage.since)", hog.UID), &since))
	if !since.Equal(d.Shortage.Since) {
		h.Errorf("since %s, and %s on the page", d.Shortage.Since, since)
	}
	text, err := h.polylet("explain", "node")
	h.must(err)
	for _, want := range []string{d.Why, "evicted default/hog (it has 1s to end)", fmt.Sprintf("reclaimed: %d containers, %d images", d.Reclaimed.Containers, d.Reclaimed.Images), "CONSIDERED", "default/small"} {
		if !strings.Contains(text, want) {
			h.Errorf("polylet explain node without %q:\n%s", want, text)
		}
	}
}
