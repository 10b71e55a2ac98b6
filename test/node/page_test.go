package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/harness/browser"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/install"
)

// The page in a real browser on a real node. POLYLET_PAGE_SHOTS names a
// directory that gets the screenshots; make node-page uses it.

func TestThePageShowsInABrowserWhatRunsAndWhatWaits(t *testing.T) {
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	h := build(t, plan{standalone: true, pageAddress: address})
	h.must(install.Browser(h.ctx, os.Stderr))
	h.seedPage()
	b, err := browser.Start(h.ctx, browser.Config{Dir: t.TempDir()})
	h.must(err)
	t.Cleanup(b.Close)
	h.must(b.Window(h.ctx, 1280, 1000, false))
	h.must(b.Open(h.ctx, "http://"+address+"/"))
	page := &view{h, b}

	page.shows("the node, its pods and what waits", nodeName, "Ready", "web", "unknown-image", "image registry.polylet.test/nobody/knows:v9", "never-ready", "crashing", "Recent events", "Started")
	page.shows("the events of the node", "Starting kubelet.")
	page.shows("charts of what was used", "peak")
	page.counts("a chart of each pod's CPU and memory", "#rows .spark svg path.line", 4)
	if os.Getenv("POLYLET_PAGE_SHOTS") != "" {
		h.eventually(3*time.Minute, "the charts have a history that is worth a picture", func() error {
			var n int
			err := b.Eval(h.ctx, "JSON.parse(sessionStorage.getItem('usage')).node.length", &n)
			return boolError(err == nil && n >= 14, "%d samples: %v", n, err)
		})
	}
	page.shot("node-page.png")

	// By keyboard: filter, choose, open, close.
	h.must(b.Press(h.ctx, "/"))
	for _, key := range "unknown" {
		h.must(b.Press(h.ctx, string(key)))
	}
	page.counts("one row is left", "#rows tr", 1)
	h.must(b.Press(h.ctx, "ArrowDown"))
	h.must(b.Press(h.ctx, "Enter"))
	page.shows("what the pod waits for and what to do", "the registry does not have it", "pull image", "Timeline", "next try in")
	page.shot("node-page-pod.png")
	h.must(b.Press(h.ctx, "Escape"))
	page.counts("the sheet is closed", "dialog[open]", 0)
	h.must(b.Eval(h.ctx, `(() => { const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input')); })()`, nil))

	// By mouse: another pod, with its probe.
	h.must(b.Eval(h.ctx, `[...document.querySelectorAll('#rows tr')].find((r) => r.innerText.includes('never-ready')).click()`, nil))
	page.shows("the probe and its last attempt", "readiness", "GET http :8080/healthz", "failed")
	page.shot("node-page-probe.png")
	// Another one is chosen before the page has heard that the sheet is closed.
	h.must(b.Eval(h.ctx, `(() => { document.querySelector('dialog').close(); [...document.querySelectorAll('#rows tr')].find((r) => r.innerText.includes('unknown-image')).click(); })()`, nil))
	page.shows("the pod that was chosen at once", "the registry does not have it", "Timeline")
	page.counts("the sheet is open", "dialog[open]", 1)

	// Dark and narrow.
	h.must(b.Press(h.ctx, "Escape"))
	h.must(b.Window(h.ctx, 390, 844, true))
	page.eventually("nothing is wider than a telephone", func() error {
		var width int
		err := b.Eval(h.ctx, "document.documentElement.scrollWidth", &width)
		return boolError(err == nil && width <= 390, "the page is %d pixels wide: %v", width, err)
	})
	page.shot("node-page-narrow.png")

	// A container that ends is seen without a reload.
	h.must(h.removeStaticPod("web.yaml"))
	page.eventually("a pod that is gone leaves the page", func() error {
		var rows string
		err := b.Eval(h.ctx, "document.getElementById('rows').innerText", &rows)
		return boolError(err == nil && !strings.Contains(rows, "web"), "it still shows: %s %v", rows, err)
	})
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the browser complains: %v", problems)
	}
}

// seedPage makes pods of every mood.
func (h *house) seedPage() {
	h.Helper()
	web := webApp("web")
	web.Spec.Containers = append(web.Spec.Containers, corev1.Container{Name: "logger", Image: web.Spec.Containers[0].Image, Args: []string{"logs", "rate=5"}})
	unknown := app("unknown-image", "sleep")
	unknown.Spec.Containers[0].Image = "registry.polylet.test/nobody/knows:v9"
	never := webApp("never-ready")
	never.Spec.Containers[0].Args = []string{"http", "port=8080", "healthy=false"}
	done := app("done", "exit", "after=1s")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	n := h.ask()
	for _, pod := range []*corev1.Pod{web, webApp("api"), unknown, never, app("crashing", "exit", "code=3", "after=1s"), done} {
		pod.APIVersion, pod.Kind, pod.Spec.NodeName = "v1", "Pod", ""
		manifest, err := json.Marshal(pod)
		h.must(err)
		h.must(h.node.AddStaticPod(pod.Name+".yaml", string(manifest)))
	}
	for _, name := range []string{"web", "api"} {
		h.eventually(2*time.Minute, name+" is Ready", func() error {
			pod := n.pod(name + "-" + nodeName)
			return boolError(isReady(pod), "%s", describe(pod))
		})
	}
}

// view is a page that a test looks at.
type view struct {
	h *house
	b *browser.Browser
}

func (v *view) eventually(what string, check func() error) {
	v.h.Helper()
	v.h.eventually(time.Minute, what, check)
}

func (v *view) shows(what string, texts ...string) {
	v.h.Helper()
	v.eventually("the page shows "+what, func() error {
		text, err := v.b.Text(v.h.ctx)
		if err != nil {
			return err
		}
		for _, want := range texts {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
				return fmt.Errorf("%q is not on the page:\n%s\n%v", want, text, v.b.Problems())
			}
		}
		return nil
	})
}

// counts waits for that many elements; for at least as many when n is above one.
func (v *view) counts(what, selector string, n int) {
	v.h.Helper()
	v.eventually(what, func() error {
		var got int
		err := v.b.Eval(v.h.ctx, fmt.Sprintf("document.querySelectorAll(%q).length", selector), &got)
		return boolError(err == nil && (got == n || n > 1 && got > n), "%d of %s: %v", got, selector, err)
	})
}

func (v *view) shot(name string) {
	v.h.Helper()
	dir := os.Getenv("POLYLET_PAGE_SHOTS")
	if dir == "" {
		dir = v.h.TempDir()
	}
	file := filepath.Join(dir, name)
	v.h.must(v.b.Screenshot(v.h.ctx, file))
	info, err := os.Stat(file)
	v.h.must(err)
	if info.Size() < 10_000 {
		v.h.Errorf("screenshot %s has %d bytes: nothing is on it", name, info.Size())
	}
}
