package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// allMethods are those that each path is asked with.
var allMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// row is one path of chapter 1 of the kubelet's surface.
type row struct {
	path string
	// subresources of nodes that let somebody pass, any of them.
	subresources string
	// methods that are served; none is any. Others are 405 for those who may.
	methods []string
	status  int
	body    string // contained
	// readOnly is the status on the port without authentication.
	readOnly int
}

var get, getPost, post = []string{"GET"}, []string{"GET", "POST"}, []string{"POST"}

const disabled = "Debug endpoints are disabled."

// rows are all paths that the kubelet has, and some that it has not.
func rows() []row {
	return []row{
		{"/healthz", "healthz proxy", nil, 200, "ok", 200},
		{"/healthz/ping", "healthz proxy", nil, 200, "ok", 200},
		{"/healthz/log", "healthz proxy", nil, 200, "ok", 200},
		{"/healthz/syncloop", "healthz proxy", nil, 200, "ok", 200},
		{"/healthz/device-plugin", "healthz proxy", nil, 200, "ok", 200},
		{"/healthz/podsync", "healthz proxy", nil, 200, "ok", 200},
		{"/healthz/nosuch", "healthz proxy", nil, 404, "404: Page Not Found", 404},
		{"/healthzx", "proxy", nil, 404, "404: Page Not Found", 404},
		{"/metrics", "metrics", nil, 200, "kubelet_running_pods", 200},
		{"/metrics/cadvisor", "metrics", nil, 200, "METRICS_DOCUMENT_CADVISOR 1", 200},
		{"/metrics/resource", "metrics", nil, 200, "METRICS_DOCUMENT_RESOURCE 1", 200},
		{"/metrics/probes", "metrics", nil, 200, "prober_probe_total", 200},
		{"/metrics/slis", "metrics", nil, 200, "", 200},
		{"/metrics/nosuch", "metrics", nil, 404, "404: Page Not Found", 404},
		{"/pods", "pods proxy", get, 200, `"kind":"PodList"`, 200},
		{"/pods/", "pods proxy", get, 200, `"kind":"PodList"`, 200},
		{"/podsx", "proxy", nil, 404, "404: Page Not Found", 404},
		{"/Pods", "proxy", nil, 404, "404: Page Not Found", 404},
		{"/stats/summary", "stats", getPost, 200, `{"node":{}}`, 200},
		{"/stats", "stats", nil, 404, "404: Page Not Found", 404},
		{"/stats/", "stats", nil, 404, "404: Page Not Found", 404},
		{"/stats/container", "stats", nil, 404, "404: Page Not Found", 404},
		{"/stats/ns/p/u/c", "stats", nil, 404, "404: Page Not Found", 404},
		{"/containerLogs/ns/p/c", "proxy", get, 200, "first\nlast\n", 405},
		{"/containerLogs/ns/x/c", "proxy", get, 404, `pod "x" does not exist`, 405},
		{"/containerLogs/ns//c", "proxy", get, 400, `{"message": "Missing podID."}`, 405},
		{"/exec/ns/p/c?command=x", "proxy", getPost, 400, "you must specify at least 1 of stdin, stdout, stderr", 405},
		{"/exec/ns/p/u/c?command=x&output=1", "proxy", getPost, 400, "Upgrade request required", 405},
		{"/attach/ns/p/c", "proxy", getPost, 400, "you must specify at least 1 of stdin, stdout, stderr", 405},
		{"/attach/ns/p/u/c?output=1", "proxy", getPost, 400, "Upgrade request required", 405},
		{"/run/ns/p/c?cmd=echo+a", "proxy", post, 200, "echo|a!", 405},
		{"/run/ns/p/u/c?cmd=echo", "proxy", post, 200, "echo!", 405},
		{"/run/ns/x/c?cmd=echo", "proxy", post, 404, "pod does not exist", 405},
		{"/run/ns/p/c?cmd=fail", "proxy", post, 500, "command 'fail' exited with 2: bad", 405},
		{"/portForward/ns/p", "proxy", getPost, 400, "Upgrade request required", 405},
		{"/portForward/ns/p/u", "proxy", getPost, 400, "Upgrade request required", 405},
		{"/runningpods/", "pods proxy", get, 200, `"items":[]`, 405},
		{"/runningpods", "pods proxy", nil, 307, "", 404},
		{"/configz", "configz proxy", nil, 200, `{"kubeletconfig":{"kind":"KubeletConfiguration"}}`, 404},
		{"/flagz", "configz", nil, 200, "kubelet flagz", 404},
		{"/statusz", "statusz", nil, 200, "kubelet statusz", 404},
		{"/checkpoint/ns/p/c", "checkpoint", post, 200, `{"items":["/checkpoints/c-0.tar"]}`, 404},
		{"/checkpoint/ns/p/c?timeout=1&timeout=7", "checkpoint", post, 200, `{"items":["/checkpoints/c-7.tar"]}`, 404},
		{"/checkpoint/ns/p/c?timeout=x", "checkpoint", post, 404, "timeout", 404},
		{"/checkpoint/ns/x/c", "checkpoint", post, 404, `pod "x" does not exist`, 404},
		{"/checkpoint/ns/p/nosuch", "checkpoint", post, 404, "not found", 404},
		{"/logs/", "log", get, 200, `<a href="a.log">a.log</a>`, 405},
		{"/logs/a.log", "log", get, 200, nodeLog, 405},
		{"/logs/nosuch", "log", get, 404, "404 page not found", 405},
		{"/logs/?query=kubelet&tailLines=3", "log", get, 200, "log of [kubelet], last 3", 405},
		{"/logs/?query=/a.log", "log", get, 200, nodeLog, 405},
		{"/logs/?query=", "log", get, 400, "query cannot be empty", 405},
		{"/logs/?query=a%3Bb", "log", get, 406, "a;b", 405},
		{"/logs/?tailLines=3", "log", get, 406, "cannot be empty with options", 405},
		{"/logs/a.log?query=kubelet", "log", get, 406, "path not allowed in query mode", 405},
		{"/logs", "log", nil, 307, "", 404},
		{"/debug/pprof/", "proxy", get, 200, "what follows is podsync's", 405},
		{"/debug/pprof/heap?debug=1", "proxy", get, 200, "heap of kubelet_running_pods seconds=0 debug=1", 405},
		{"/debug/pprof/stats/profile?seconds=3", "proxy", get, 200, "profile of polylet_stats_x seconds=3", 405},
		{"/debug/pprof/gateway/", "proxy", get, 200, " of polylet_gateway_x", 405},
		{"/debug/pprof/nosuch", "proxy", get, 404, "Unknown profile", 405},
		{"/debug/pprof/heap?seconds=x", "proxy", get, 400, "seconds", 405},
		{"/debug/flags/v", "proxy", []string{"PUT"}, 400, "not a number, 0 or more", 404},
		{"/debug/nosuch", "proxy", nil, 404, "404: Page Not Found", 404},
		{"/", "proxy", nil, 404, "404: Page Not Found", 404},
		{"/nosuch", "proxy", nil, 404, "404: Page Not Found", 404},
		{"//pods", "proxy", nil, 404, "404: Page Not Found", 404},
		// Ours.
		{"/spec", "stats proxy", nil, 200, `{"num_cores":2}`, 404},
	}
}

// allowed is what somebody who may do all gets.
func (r row) allowed(method string) (status int, body string) {
	status, body = r.status, r.body
	if len(r.methods) > 0 && !slices.Contains(r.methods, method) {
		status, body = http.StatusMethodNotAllowed, "405: Method Not Allowed"
	}
	if method == "HEAD" {
		body = ""
	}
	return status, body
}

func TestEveryPathWithEveryMethodByEveryIdentity(t *testing.T) {
	h := newHouse(t)
	base := "https://" + h.start(t, nil).Addresses()["secure"]
	client := httpClient(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	identities := []string{"", "unknown-token", "admin-token", "reader-token"}
	for _, sub := range subresources() {
		identities = append(identities, "only-"+sub)
	}
	requests := 0
	for _, r := range rows() {
		for _, method := range allMethods {
			for _, who := range identities {
				status, body := r.allowed(method)
				alone := strings.TrimPrefix(who, "only-")
				path, _, _ := strings.Cut(r.path, "?")
				runs := slices.ContainsFunc([]string{"/exec/", "/attach/", "/run/", "/portForward/"}, func(p string) bool { return strings.HasPrefix(path, p) })
				switch {
				case who == "" || who == "unknown-token":
					status, body = 401, "Unauthorized"
				case who == "reader-token" && (method != "GET" || runs):
					status, body = 403, "Forbidden (user=reader, verb="
				case alone != who && !slices.Contains(strings.Fields(r.subresources), alone):
					status, body = 403, "resource=nodes, subresource(s)=["+r.subresources+"])\n"
				}
				if method == "HEAD" {
					body = ""
				}
				got := ask(t, client, method, base+r.path, who)
				requests++
				if got.status != status || !strings.Contains(got.body, body) {
					t.Errorf("%s %s by %q: %d %q, want %d with %q", method, r.path, who, got.status, got.body, status, body)
				}
				if status == 405 && got.header.Get("Allow") != strings.Join(r.methods, ", ") {
					t.Errorf("%s %s: Allow is %q", method, r.path, got.header.Get("Allow"))
				}
			}
		}
	}
	t.Logf("%d requests", requests)
}

func TestAnonymousGetsWhatAnonymousMayHave(t *testing.T) {
	h := newHouse(t)
	base := "https://" + h.start(t, func(c *Config) { c.Anonymous = true }).Addresses()["secure"]
	client := httpClient(t)
	for _, r := range rows() {
		got := ask(t, client, "GET", base+r.path, "")
		if got.status != 403 || !strings.Contains(got.body, "user=system:anonymous") {
			t.Errorf("%s: %d %q", r.path, got.status, got.body)
		}
	}
}

func TestThePortWithoutAuthenticationServesGroupAOnly(t *testing.T) {
	h := newHouse(t)
	base := "http://" + h.start(t, nil).Addresses()["read-only"]
	client := httpClient(t)
	for _, r := range rows() {
		for _, method := range allMethods {
			status, body := r.readOnly, disabled
			if status != 405 {
				body = ""
			}
			if status == 200 {
				if len(r.methods) == 0 {
					r.methods = []string{"GET", "HEAD"}
				}
				status, body = r.allowed(method)
			}
			if method == "HEAD" {
				body = ""
			}
			if got := ask(t, client, method, base+r.path, ""); got.status != status || !strings.Contains(got.body, body) {
				t.Errorf("%s %s: %d %q, want %d with %q", method, r.path, got.status, got.body, status, body)
			}
		}
	}
}

func TestDebuggingHandlersCanBeTurnedOffTogetherAndOneByOne(t *testing.T) {
	h := newHouse(t)
	for _, c := range []struct {
		name string
		edit func(*Config)
		want map[string]int
		body string
	}{
		{"all", func(c *Config) { c.DebuggingHandlers = false }, map[string]int{
			"/run/ns/p/c": 405, "/exec/ns/p/c": 405, "/attach/ns/p/c": 405, "/portForward/ns/p": 405, "/containerLogs/ns/p/c": 405,
			"/runningpods/": 405, "/debug/pprof/": 405, "/logs/": 405,
			"/configz": 404, "/flagz": 404, "/statusz": 404, "/checkpoint/ns/p/c": 404, "/debug/flags/v": 404, "/pods": 200,
		}, disabled},
		{"logs", func(c *Config) { c.SystemLogHandler = false }, map[string]int{"/logs/": 405, "/logs/a.log": 405, "/configz": 200}, "logs endpoint is disabled."},
		{"profiles", func(c *Config) { c.ProfilingHandler = false }, map[string]int{"/debug/pprof/": 405, "/debug/pprof/heap": 405}, "profiling endpoint is disabled."},
		{"flags", func(c *Config) { c.DebugFlagsHandler = false }, map[string]int{"/debug/flags/v": 405}, "flags endpoint is disabled."},
		{"gates", func(c *Config) { c.Flagz, c.Statusz, c.Checkpoint = false, false, false }, map[string]int{"/flagz": 404, "/statusz": 404, "/checkpoint/ns/p/c": 404}, ""},
		{"queries", func(c *Config) { c.SystemLogQuery = false }, map[string]int{"/logs/?query=kubelet": 200, "/logs/?query=": 200}, ""},
	} {
		base := "https://" + h.start(t, c.edit).Addresses()["secure"]
		for path, status := range c.want {
			if got := ask(t, httpClient(t), "GET", base+path, "admin-token"); got.status != status || status == 405 && got.body != c.body {
				t.Errorf("%s off: %s: %d %q, want %d", c.name, path, got.status, got.body, status)
			}
		}
	}
}
