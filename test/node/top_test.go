package node_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

// apiService makes the apiserver ask metrics-server, which runs on the host.
const apiService = `apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics-server, namespace: kube-system, port: %d}
`

func TestKubectlTopShowsNodeAndPodsThroughMetricsServer(t *testing.T) {
	h := build(t, plan{})
	h.create(webApp("web"))
	h.waitReady("web", time.Minute)
	h.metricsServer()
	h.eventually(90*time.Second, "kubectl top node shows CPU and memory", func() error {
		out, err := h.kubectl("top", "node", "--no-headers")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		return boolError(len(fields) == 5 && fields[0] == nodeName && fields[3] != "0Mi" && fields[3] != "<unknown>", "it prints %q", out)
	})
	h.eventually(60*time.Second, "kubectl top pod shows the container", func() error {
		out, err := h.kubectl("top", "pod", "--containers", "--no-headers")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		return boolError(len(fields) == 4 && fields[0] == "web" && fields[1] == "app" && strings.HasSuffix(fields[3], "Mi") && fields[3] != "0Mi", "it prints %q", out)
	})
}

// metricsServer runs metrics-server with the rights that its own manifests give it.
func (h *house) metricsServer() {
	h.Helper()
	builder, err := programs.New(os.Stderr)
	h.must(err)
	binary, err := builder.Binary(h.ctx, programs.MetricsServer())
	h.must(err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "metrics-server"}}
	_, err = h.cluster.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(h.ctx, account, metav1.CreateOptions{})
	h.must(err)
	h.grant("metrics-server", metav1.NamespaceSystem,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	h.bind("metrics-server", metav1.NamespaceSystem, "system:auth-delegator")
	token, err := h.kubectl("create", "token", "metrics-server", "-n", metav1.NamespaceSystem)
	h.must(err)
	kubeconfig := h.inst.Path("metrics-server.kubeconfig")
	h.must(h.tokenKubeconfig(kubeconfig, strings.TrimSpace(token)))
	port, err := cluster.FreePort()
	h.must(err)
	p := process.New(process.Config{
		Name: "metrics-server", Path: binary, LogFile: h.inst.Path("metrics-server.log"),
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--secure-port=" + strconv.Itoa(port), "--bind-address=127.0.0.1", "--cert-dir=" + h.inst.Path("metrics-server"),
			"--kubelet-insecure-tls", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s", "--kubelet-request-timeout=5s",
		},
	})
	h.must(p.Start(h.ctx))
	h.Cleanup(p.Stop)
	manifest := h.inst.Path("metrics-server.yaml")
	h.must(os.WriteFile(manifest, []byte(fmt.Sprintf(apiService, port)), 0o600))
	out, err := h.kubectl("apply", "-f", manifest)
	if err != nil {
		h.Fatal(out, err)
	}
}

// tokenKubeconfig writes a kubeconfig with a bearer token.
func (h *house) tokenKubeconfig(path, token string) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: h.cluster.Server, CertificateAuthority: h.cluster.ClientCAFile()}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	return clientcmd.WriteToFile(*cfg, path)
}

// grant gives a service account the rules in the whole cluster.
func (h *house) grant(account, namespace string, rules ...rbacv1.PolicyRule) {
	h.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules}
	_, err := h.cluster.Client.RbacV1().ClusterRoles().Create(h.ctx, role, metav1.CreateOptions{})
	h.must(err)
	h.bind(account, namespace, account)
}

// bind gives a service account a cluster role.
func (h *house) bind(account, namespace, role string) {
	h.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account + "-" + strings.ReplaceAll(role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}
	_, err := h.cluster.Client.RbacV1().ClusterRoleBindings().Create(h.ctx, binding, metav1.CreateOptions{})
	h.must(err)
}
