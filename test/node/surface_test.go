package node_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

func TestTheNodeAPIServesItsDocuments(t *testing.T) {
	h := build(t, plan{})
	p := webApp("web")
	p.Spec.Containers[0].LivenessProbe = p.Spec.Containers[0].ReadinessProbe.DeepCopy()
	h.create(p)
	h.waitReady("web", time.Minute)
	documents := map[string]string{
		"/pods":                          `"name":"web"`,
		"/runningpods/":                  `"name":"web"`,
		"/containerLogs/default/web/app": "serving HTTP on",
		"/stats/summary":                 `"name": "web"`,
		"/metrics":                       "kubelet_",
		"/metrics/cadvisor":              `container_memory_working_set_bytes{container="app"`,
		"/metrics/resource":              `container_cpu_usage_seconds_total{container="app"`,
		"/metrics/probes":                `prober_probe_total{`,
		"/configz":                       `"kubeletconfig"`,
		"/spec":                          `"num_cores"`,
		"/healthz":                       "ok",
	}
	if onKubelet() {
		delete(documents, "/spec") // the kubelet has given it up
		// Its cAdvisor knows names only from containerd's usual socket.
		documents["/metrics/cadvisor"] = "container_memory_working_set_bytes{"
	}
	h.eventually(time.Minute, "every document is there", func() error {
		for path, want := range documents {
			body, err := h.nodeAPI(path)
			if err != nil {
				return err
			}
			if !strings.Contains(compact(body), compact(want)) {
				return fmt.Errorf("%s has no %s; it begins with %.300q", path, want, body)
			}
		}
		return nil
	})
	raw, err := h.kubectl("get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/pods")
	h.must(err)
	pods := new(corev1.PodList)
	h.must(json.Unmarshal([]byte(raw), pods))
	if len(pods.Items) != 1 {
		t.Errorf("through the apiserver /pods has %d pods, want 1", len(pods.Items))
	}
}

func TestTheNodeAPIRefusesStrangers(t *testing.T) {
	h := build(t, plan{})
	if code, err := h.asks("/pods", ""); err != nil || code != http.StatusUnauthorized {
		t.Errorf("/pods without credentials answers %d, want 401; %v", code, err)
	}
	// A token that is good but may not use the node's API.
	token, err := h.kubectl("create", "token", "default")
	h.must(err)
	h.eventually(time.Minute, "a token without rights is refused", func() error {
		code, err := h.asks("/pods", strings.TrimSpace(token))
		if err != nil {
			return err
		}
		return boolError(code == http.StatusForbidden, "it answers %d, want 403", code)
	})
	if body := h.get(h.node.ReadOnlyURL + "/healthz"); !strings.Contains(body, "ok") {
		t.Errorf("the read-only healthz says %q", body)
	}
	res, err := http.Post(h.node.ReadOnlyURL+"/run/default/web/app?cmd=true", "", nil)
	h.must(err)
	res.Body.Close()
	if res.StatusCode < 400 {
		t.Errorf("the read-only port runs commands: %s", res.Status)
	}
}

// asks has somebody with this token, or none, ask the node's API, and returns the
// status of the answer.
func (h *house) asks(path, token string) (int, error) {
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the refusal is what is tested
	req, err := http.NewRequestWithContext(h.ctx, http.MethodGet, h.node.URL+path, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := stranger.Do(req)
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	return res.StatusCode, nil
}

func TestTheProcessesThatFaceTheNetworkHaveNoPrivileges(t *testing.T) {
	h := build(t, plan{supervised: true})
	run, ok := h.node.Processes["run"]
	if !ok {
		t.Skip("the kubelet is one process")
	}
	for _, service := range []string{"gateway", "probes"} {
		var pid int
		h.quietly(time.Minute, service+" runs", func() error {
			var err error
			pid, err = childOf(run.Pid(), service)
			return err
		})
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		h.must(err)
		fields := map[string]string{}
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		if strings.HasPrefix(fields["Uid"], "0\t") || strings.Contains(fields["Uid"], "\t0") {
			t.Errorf("%s runs as root: Uid %s", service, fields["Uid"])
		}
		for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"} {
			if strings.Trim(fields[set], "0") != "" {
				t.Errorf("%s has capabilities: %s %s", service, set, fields[set])
			}
		}
		if fields["NoNewPrivs"] != "1" {
			t.Errorf("%s could gain privileges: NoNewPrivs is %q", service, fields["NoNewPrivs"])
		}
		h.checkReach(service, fields)
	}
}

// TestWhatReadsTheHostIsNotRoot: stats and nodestatus keep what reading needs.
func TestWhatReadsTheHostIsNotRoot(t *testing.T) {
	h := build(t, plan{supervised: true})
	run, ok := h.node.Processes["run"]
	if !ok {
		t.Skip("the kubelet is one process")
	}
	seen := map[string]bool{}
	for service, capabilities := range map[string]string{"gateway": "", "probes": "", "stats": "80004", "nodestatus": "4"} {
		var pid int
		h.quietly(time.Minute, service+" runs", func() (err error) {
			pid, err = childOf(run.Pid(), service)
			return err
		})
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		h.must(err)
		fields := map[string]string{}
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		if seen[fields["Uid"]] || strings.HasPrefix(fields["Uid"], "0\t") {
			t.Errorf("%s has Uid %s, as another has", service, fields["Uid"])
		}
		seen[fields["Uid"]] = true
		for _, set := range []string{"CapEff", "CapPrm", "CapBnd", "CapAmb"} {
			if got := strings.TrimLeft(fields[set], "0"); got != capabilities {
				t.Errorf("%s has %s %s, want %q", service, set, got, capabilities)
			}
		}
		// It would get into any process else that it may look at.
		if fields["Seccomp"] != "2" {
			t.Errorf("%s has no filter of system calls: Seccomp is %q", service, fields["Seccomp"])
		}
	}
	// They still do their work.
	h.eventually(time.Minute, "the summary has the node's and its pods' figures", func() error {
		body, err := h.nodeAPI("/stats/summary")
		if err != nil {
			return err
		}
		return boolError(strings.Contains(compact(body), `"usageNanoCores":`) && strings.Contains(compact(body), `"rlimit":{`), "it has none: %.300q", body)
	})
}

// checkReach asks the kernel whether a process with these fields of
// /proc/PID/status may connect to the runtime or read what root's processes have.
func (h *house) checkReach(service string, fields map[string]string) {
	h.Helper()
	who := &syscall.Credential{Uid: number(h.T, fields["Uid"]), Gid: number(h.T, fields["Gid"])}
	for text := range strings.FieldsSeq(fields["Groups"]) {
		who.Groups = append(who.Groups, number(h.T, text))
	}
	may := func(how, path string) bool {
		if _, err := os.Stat(path); err != nil {
			h.Errorf("%s is not there to be tried: %v", path, err)
		}
		cmd := exec.CommandContext(h.ctx, "test", how, path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		return cmd.Run() == nil
	}
	// Connecting to a socket needs the right to write to it.
	if may("-w", h.runtime.Socket) {
		h.Errorf("%s, uid %d, groups %v, may connect to the runtime at %s", service, who.Uid, who.Groups, h.runtime.Socket)
	}
	refused := []string{"/etc/shadow", h.node.Kubeconfig, filepath.Join(h.node.RootDir, "pods")}
	if service != "gateway" {
		copies, err := filepath.Glob(filepath.Join(h.node.SocketDir, "gateway", "*"))
		if h.must(err); len(copies) == 0 {
			h.Error("the gateway has no copies to be tried")
		}
		refused = append(refused, copies...)
	}
	for _, path := range refused {
		if may("-r", path) {
			h.Errorf("%s may read %s", service, path)
		}
	}
	// The means of asking work: its own copies it may read.
	if own := filepath.Join(h.node.SocketDir, service, "slice.json"); !may("-r", own) {
		h.Errorf("%s may not read %s", service, own)
	}
}

// number is the first number of a field.
func number(t *testing.T, field string) uint32 {
	t.Helper()
	first, _, _ := strings.Cut(strings.TrimSpace(field), "\t")
	n, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func TestTheDocumentsAboutTheAgentItselfAreServed(t *testing.T) {
	h := build(t, plan{supervised: true, overrides: map[string]any{"enableSystemLogQuery": true, "enableContentionProfiling": true}})
	if onKubelet() {
		t.Skip("processes by name are polylet's")
	}
	for path, want := range map[string]string{
		"/healthz?verbose": "[+]device-plugin ok", "/healthz/syncloop": "ok", "/healthz/log": "ok",
		"/metrics/slis": `kubernetes_healthcheck{name="ping",type="healthz"} 1`, "/statusz": "kubelet statusz", "/flagz": "kubelet flagz",
		"/debug/pprof/": "goroutine", "/debug/pprof/podsync/goroutine?debug=1": "podsync", "/debug/pprof/stats/cmdline": "stats",
		"/debug/pprof/gateway/profile?seconds=1": "\x1f\x8b", "/logs/": "<pre>", "/logs/?query=no-such-service": "log not found for no-such-service",
	} {
		h.eventually(time.Minute, path+" is served", func() error {
			body, err := h.nodeAPI(path)
			if err != nil {
				return err
			}
			return boolError(strings.Contains(body, want), "%s answers %.300q, want %q", path, body, want)
		})
	}
}

// nodeAPI asks the node's own server as the administrator.
func (h *house) nodeAPI(path string) (string, error) {
	cfg := rest.CopyConfig(h.cluster.Rest)
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, ""
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(h.ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.node.URL+path, nil)
	if err != nil {
		return "", err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.300s", path, res.Status, body)
	}
	return string(body), err
}

// compact takes blanks out, for documents are indented or not.
func compact(s string) string { return strings.ReplaceAll(s, " ", "") }
