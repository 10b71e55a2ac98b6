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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/process"
)

// metricPaths are the five documents that Prometheus scrapes.
var metricPaths = []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"}

const prometheusConfig = `global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: kubelet
  scheme: https
  authorization: {credentials: %q}
  tls_config: {insecure_skip_verify: true}
  metrics_path: /metrics
  static_configs:
`

const prometheusTarget = "  - {targets: [%q], labels: {__metrics_path__: %s, path: %s}}\n"

// queries must have a result that is not zero once a pod has run for a while.
var queries = []string{
	`sum(kubelet_running_pods) >= 1`,
	`kubelet_node_name{node="` + nodeName + `"} == 1`,
	`sum(kubelet_running_containers{container_state="running"}) >= 1`,
	`sum by (operation_type) (rate(kubelet_runtime_operations_total[20s])) > 0`,
	`histogram_quantile(0.99, sum by (le) (kubelet_runtime_operations_duration_seconds_bucket)) > 0`,
	`histogram_quantile(0.99, sum by (le) (kubelet_pod_start_duration_seconds_bucket)) > 0`,
	`kubernetes_build_info{major="1",minor="36"} == 1`,
	`sum(rest_client_requests_total{code=~"2.."}) > 0`,
	`count(process_resident_memory_bytes) >= 1`,
	`container_memory_working_set_bytes{path="/metrics/cadvisor",pod="web",container="app"} > 0`,
	`sum(container_cpu_usage_seconds_total{path="/metrics/cadvisor",pod="web",container!=""}) > 0`,
	`rate(container_network_receive_bytes_total{pod="web"}[20s]) >= 0 or vector(1)`,
	`machine_cpu_cores >= 1`,
	`pod_memory_working_set_bytes{pod="web"} > 0`,
	`container_memory_working_set_bytes{path="/metrics/resource",pod="web",container="app"} > 0`,
	`node_memory_working_set_bytes > 0`,
	`resource_scrape_error == 0 and on() vector(1)`,
	`sum(prober_probe_total{pod="web",probe_type="Readiness",result="successful"}) > 0`,
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
	h := build(t, plan{})
	h.create(webApp("web"))
	h.waitReady("web", time.Minute)
	server := h.prometheus(h.scraper())
	h.eventually(30*time.Second, "every target is up", func() error { return h.targetsUp(server) })
	wanted := queries
	if onKubelet() {
		// Its cAdvisor knows names only from containerd's usual socket.
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(q string) bool { return strings.Contains(q, `path="/metrics/cadvisor",pod`) })
	} else {
		wanted = append(slices.Clone(wanted), ownQueries...)
	}
	for _, query := range wanted {
		h.quietly(40*time.Second, query, func() error { return h.holds(server, query) })
	}
	h.lint()
}

// scraper makes an account that may read the node's metrics and nothing else,
// and returns its token.
func (h *house) scraper() string {
	h.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}}
	_, err := h.cluster.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(h.ctx, account, metav1.CreateOptions{})
	h.must(err)
	h.grant("scraper", metav1.NamespaceDefault, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}})
	token, err := h.kubectl("create", "token", "scraper")
	h.must(err)
	return strings.TrimSpace(token)
}

// grant gives a service account a cluster role of its own name.
func (h *house) grant(account, namespace string, rules ...rbacv1.PolicyRule) {
	h.Helper()
	meta := metav1.ObjectMeta{Name: account}
	_, err := h.cluster.Client.RbacV1().ClusterRoles().Create(h.ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	h.must(err)
	h.bind(account, namespace, account)
}

func (h *house) bind(account, namespace, role string) {
	h.Helper()
	_, err := h.cluster.Client.RbacV1().ClusterRoleBindings().Create(h.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(account+"-"+role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	h.must(err)
}

// prometheus starts Debian's Prometheus on the node's documents and returns its URL.
func (h *house) prometheus(token string) string {
	h.Helper()
	node, err := url.Parse(h.node.URL)
	h.must(err)
	config := fmt.Sprintf(prometheusConfig, token)
	for _, path := range metricPaths {
		config += fmt.Sprintf(prometheusTarget, node.Host, path, path)
	}
	h.must(os.WriteFile(h.inst.Path("prometheus.yaml"), []byte(config), 0o600))
	port, err := cluster.FreePort()
	h.must(err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := "http://" + address
	p := process.New(process.Config{
		Name: "prometheus", Path: "/usr/bin/prometheus", LogFile: h.inst.Path("prometheus.log"),
		Args: []string{
			"--config.file=" + h.inst.Path("prometheus.yaml"), "--storage.tsdb.path=" + h.inst.Path("prometheus"),
			"--web.listen-address=" + address, "--storage.tsdb.no-lockfile",
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
		text, err := h.nodeAPI(path)
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
