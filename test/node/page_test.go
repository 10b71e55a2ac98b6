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

	page.showsShortages()

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

// showsShortages has the page's documents changed on their way into it: a node that is
// really short of something ends what else runs on the machine.
func (v *view) showsShortages() {
	v.h.Helper()
	v.eventually("a node that is short of nothing has no place for it", func() error {
		var calm bool
		err := v.b.Eval(v.h.ctx, "fetch('api/overview').then((a) => a.json()).then((o) => Boolean(o.shortages?.measured) && document.getElementById('short-section').hidden)", &calm)
		return boolError(err == nil && calm, "the node is short of something, or it is not known: %v", err)
	})
	v.h.must(v.b.Eval(v.h.ctx, "{ window.asItWas = window.fetch; window.fetch = async (path, options) => {"+
		"const answer = await window.asItWas(path, options); if (path !== 'api/overview') return answer; const o = await answer.json();"+
		"const memory = { signal: 'memory.available', threshold: '100Mi', available: '50Mi', hard: true, since: o.time };"+
		"o.shortages = { measured: o.time, short: [memory], decisions: [{ time: '2026-01-02T03:04:05Z', shortage: memory, outcome: 'evicted', why: '<b id=markup>it uses most</b>', grace: 3,"+
		"chosen: { namespace: 'a', name: 'hog', uid: 'u' }, candidates: [{ namespace: 'a', name: 'hog', uid: 'u', usage: 157286400, request: 0, exceeds: true, priority: 0 }],"+
		"more: 2, reclaimed: { containers: 4, images: 1, imageBytes: 1048576 } }], more: 3 };"+
		"return new Response(JSON.stringify(o)); }; 0 }", nil))
	v.shows("what the node is short of and what was decided", "What the node is short of", "50Mi left, the hard threshold is 100Mi",
		"evicted a/hog (it has 3 s to end): <b id=markup>it uses most</b>", "reclaimed 4 containers, 1 images (1.0 MiB)", "3 pods were considered", "3 earlier ones")
	v.h.must(v.b.Eval(v.h.ctx, "document.querySelector('#decisions details').open = true", nil))
	v.shows("who was considered", "a/hog", "150 MiB")
	v.counts("nothing that was said is markup", "#markup", 0)
	v.h.must(v.b.Eval(v.h.ctx, "window.fetch = window.asItWas; 0", nil))
	v.counts("the place is gone with the shortage", "#short-section[hidden]", 1)
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
