package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/process"
)

// metricPaths are the five documents that Prometheus scrapes.
var metricPaths = []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"}

const prometheusConfig = `global: {scrape_interval: 3s, scrape_timeout: 3s}
scrape_configs:
- job_name: kubelet
  static_configs:
`

const prometheusTarget = "  - {targets: [%q], labels: {__metrics_path__: %s, path: %s}}\n"

// queries must have a result that is not zero once a pod has run for a while.
var queries = []string{
	`sum(kubelet_running_pods) >= 1`,
	`kubelet_node_name{node="` + nodeName + `"} == 1`,
	`sum(kubelet_running_containers{container_state="running"}) >= 1`,
	`sum by (operation_type) (rate(kubelet_runtime_operations_total[30s])) > 0`,
	`histogram_quantile(0.99, sum by (le) (kubelet_runtime_operations_duration_seconds_bucket)) > 0`,
	`histogram_quantile(0.99, sum by (le) (kubelet_pod_start_duration_seconds_bucket)) > 0`,
	`kubernetes_build_info{major="1",minor="36"} == 1`,
	`count(process_resident_memory_bytes) >= 1`,
	`container_memory_working_set_bytes{path="/metrics/cadvisor",pod="web-test-node",container="app"} > 0`,
	`sum(container_cpu_usage_seconds_total{path="/metrics/cadvisor",pod="web-test-node",container!=""}) > 0`,
	`machine_cpu_cores >= 1`,
	`pod_memory_working_set_bytes{pod="web-test-node"} > 0`,
	`container_memory_working_set_bytes{path="/metrics/resource",pod="web-test-node",container="app"} > 0`,
	`node_memory_working_set_bytes > 0`,
	`resource_scrape_error == 0 and on() vector(1)`,
	`sum(prober_probe_total{pod="web-test-node",probe_type="Readiness",result="successful"}) > 0`,
	`sum(kubernetes_healthcheck{name="ping",type="healthz"}) >= 1`,
	`sum(kubernetes_healthchecks_total{name="ping",status="success"}) >= 1`,
}

// ownQueries are about what only polylet has.
var ownQueries = []string{
	`count(polylet_up == 1) == 5`,
	`count(count by (service) (polylet_build_info)) == 5`,
	`count by (service) (go_goroutines{path="/metrics"}) == 1`,
}

func TestPrometheusScrapesEveryDocumentOfTheNode(t *testing.T) {
	h := build(t, plan{standalone: true, supervised: true})
	h.must(h.node.AddStaticPod("web.yaml", probedManifest))
	_, err := h.tryGet(h.node.ReadOnlyURL + "/healthz") // the checks of /metrics/slis are those that were asked for
	h.must(err)
	server := h.prometheus()
	h.eventually(60*time.Second, "every target is up", func() error { return h.targetsUp(server) })
	wanted := queries
	if onKubelet() {
		// Its cAdvisor knows names only from containerd's usual socket.
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(q string) bool { return strings.Contains(q, `path="/metrics/cadvisor",pod`) })
	} else {
		wanted = append(slices.Clone(wanted), ownQueries...)
	}
	for _, query := range wanted {
		h.quietly(90*time.Second, query, func() error { return h.holds(server, query) })
	}
	h.lint()
}

const probedManifest = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: ` + images.TestApp + `
    args: [http, port=8080]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
`

// prometheus starts Debian's Prometheus on the node's documents and returns its URL.
func (h *house) prometheus() string {
	h.must(install.Scraper(h.ctx, os.Stderr))
	h.Helper()
	node, err := url.Parse(h.node.ReadOnlyURL)
	h.must(err)
	config := prometheusConfig
	for _, path := range metricPaths {
		config += fmt.Sprintf(prometheusTarget, node.Host, path, path)
	}
	h.must(os.WriteFile(h.inst.Path("prometheus.yaml"), []byte(config), 0o600))
	port, err := cluster.FreePort()
	h.must(err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := "http://" + address
	p := process.New(process.Config{
		Name: "prometheus", Path: install.Prometheus, LogFile: h.inst.Path("prometheus.log"),
		Args: []string{
			"--config.file=" + h.inst.Path("prometheus.yaml"), "--storage.tsdb.path=" + h.inst.Path("prometheus"),
			"--web.listen-address=" + address,
		},
		Ready: func(context.Context) error { _, err := h.tryGet(server + "/-/ready"); return err },
	})
	h.must(p.Start(h.ctx))
	h.Cleanup(p.Stop)
	return server
}

// targetsUp says which of the node's documents cannot be scraped.
func (h *house) targetsUp(server string) error {
	body, err := h.tryGet(server + "/api/v1/targets?state=active")
	if err != nil {
		return err
	}
	var answer struct {
		Data struct {
			ActiveTargets []struct{ ScrapeURL, Health, LastError string }
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return err
	}
	var errs []error
	for _, target := range answer.Data.ActiveTargets {
		if target.Health != "up" {
			errs = append(errs, fmt.Errorf("%s is %s: %s", target.ScrapeURL, target.Health, target.LastError))
		}
	}
	if len(answer.Data.ActiveTargets) != len(metricPaths) {
		errs = append(errs, fmt.Errorf("%d targets, want %d", len(answer.Data.ActiveTargets), len(metricPaths)))
	}
	return errors.Join(errs...)
}

// holds says whether a query has a result.
func (h *house) holds(server, query string) error {
	body, err := h.tryGet(server + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return err
	}
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return err
	}
	return boolError(len(answer.Data.Result) > 0, "it has no result")
}

// lint has promtool look at every document. What it finds of the kubelet's own
// names is listed in testdata/promtool.txt; of ours it must find nothing.
func (h *house) lint() {
	h.Helper()
	known, err := os.ReadFile("testdata/promtool.txt")
	h.must(err)
	for _, path := range metricPaths {
		text, err := h.tryGet(h.node.ReadOnlyURL + path)
		h.must(err)
		cmd := exec.CommandContext(h.ctx, "promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			h.Fatal(err)
		}
		for line := range bytes.Lines(out) {
			line := strings.TrimSpace(string(line))
			if line != "" && !onKubelet() && !slices.Contains(strings.Split(string(known), "\n"), line) {
				h.Errorf("promtool on %s: %s", path, line)
			}
		}
	}
}

// documentsOf are the documents that only one process has.
var documentsOf = map[string][]string{"stats": {"/metrics/cadvisor", "/metrics/resource"}, "probes": {"/metrics/probes"}}

func TestADeadProcessFailsNoScrapeAndShows(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet is one process")
	}
	h := build(t, plan{standalone: true})
	services := []string{"podsync", "probes", "stats", "nodestatus"}
	up := func(dead string) error {
		var errs []error
		for _, path := range metricPaths {
			body, err := h.tryGet(h.node.ReadOnlyURL + path)
			if own := slices.Contains(documentsOf[dead], path); own == (err == nil) {
				errs = append(errs, fmt.Errorf("%s: it belongs to %q: %t; error %v", path, dead, own, err))
			}
			if path != "/metrics" {
				continue
			}
			for _, service := range services {
				want := fmt.Sprintf("polylet_up{service=%q} %d\n", service, map[bool]int{true: 0, false: 1}[service == dead])
				if !strings.Contains(body, want) {
					errs = append(errs, fmt.Errorf("/metrics does not say %s", want))
				}
			}
		}
		return errors.Join(errs...)
	}
	h.eventually(time.Minute, "all scrapes are well", func() error { return up("") })
	for _, service := range services {
		process := h.node.Processes[service]
		process.Stop()
		h.eventually(time.Minute, "without "+service+" the scrapes go on and show it", func() error { return up(service) })
		h.must(process.Start(h.ctx))
		h.eventually(time.Minute, service+" is back in the scrapes", func() error { return up("") })
	}
}
