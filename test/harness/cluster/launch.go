package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/test/harness/process"
)

func (c *Cluster) launch(ctx context.Context, binaries map[string]string) error {
	if err := c.cfg.Instance.RouteServices(); err != nil {
		return err
	}
	fmt.Fprintln(c.cfg.Progress, "starting etcd and kube-apiserver …")
	etcdURL, err := c.startEtcd(ctx, binaries["etcd"])
	if err != nil {
		return err
	}
	if err := c.startAPIServer(ctx, binaries["kube-apiserver"], etcdURL); err != nil {
		return err
	}
	if err := c.bootstrap(ctx); err != nil {
		return err
	}
	if !c.cfg.Controllers {
		return nil
	}
	fmt.Fprintln(c.cfg.Progress, "starting kube-controller-manager and kube-scheduler …")
	scheduler := make(chan error, 1)
	go func() { scheduler <- c.startScheduler(ctx, binaries["kube-scheduler"]) }()
	err = c.startControllerManager(ctx, binaries["kube-controller-manager"])
	if err := errors.Join(err, <-scheduler); err != nil {
		return err
	}
	// Pods in the default namespace are refused before this.
	ctx, cancel := context.WithTimeout(ctx, namespaceWithin)
	defer cancel()
	return c.waitNamespace(ctx, metav1.NamespaceDefault)
}

func (c *Cluster) startEtcd(ctx context.Context, binary string) (string, error) {
	client, err := freeURL()
	if err != nil {
		return "", err
	}
	peer, err := freeURL()
	if err != nil {
		return "", err
	}
	c.Etcd = process.New(process.Config{
		Name: "etcd", Path: binary, LogFile: c.path("etcd.log"),
		Args: []string{
			"--name=polylet", "--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=polylet=" + peer,
			// A test's data need not survive the machine's crash.
			"--unsafe-no-fsync", "--log-level=warn",
		},
		Ready: func(ctx context.Context) error { return get(ctx, http.DefaultClient, client+"/health") },
	})
	return client, c.Etcd.Start(ctx)
}

func (c *Cluster) startAPIServer(ctx context.Context, binary, etcdURL string) error {
	server, err := url.Parse(c.Server)
	if err != nil {
		return err
	}
	k := c.keys
	audit, err := c.audit()
	if err != nil {
		return err
	}
	c.APIServer = process.New(process.Config{
		Name: "kube-apiserver", Path: binary, LogFile: c.path("kube-apiserver.log"),
		Args: append(append(append(audit, c.verifyNodes()...), c.further()...),
			"--bind-address="+c.cfg.Address, "--advertise-address="+c.cfg.Address, "--secure-port="+server.Port(),
			"--etcd-servers="+etcdURL, "--service-cluster-ip-range="+c.cfg.Instance.ServiceCIDR(),
			"--endpoint-reconciler-type=none", "--allow-privileged=true",
			// A node may do what a kubelet does to what is its own, and no more.
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--enable-bootstrap-token-auth=true", "--anonymous-auth=true",
			"--client-ca-file="+k.ca.file, "--tls-cert-file="+k.serving.cert, "--tls-private-key-file="+k.serving.key,
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file="+k.serviceAccounts.cert,
			"--service-account-signing-key-file="+k.serviceAccounts.key,
			"--kubelet-client-certificate="+k.kubelets.cert, "--kubelet-client-key="+k.kubelets.key,
			"--kubelet-preferred-address-types=InternalIP,Hostname",
			"--requestheader-client-ca-file="+k.frontProxy.file, "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file="+k.frontProxyClient.cert, "--proxy-client-key-file="+k.frontProxyClient.key,
		),
		Ready: func(ctx context.Context) error {
			return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		},
		ReadyWithin: 2 * time.Minute, StopWithin: 15 * time.Second,
	})
	return c.APIServer.Start(ctx)
}

// further returns the apiserver's flags for what it does not do by itself.
func (c *Cluster) further() (flags []string) {
	if len(c.cfg.Gates) > 0 {
		flags = append(flags, "--feature-gates="+strings.Join(c.cfg.Gates, "=true,")+"=true")
	}
	if len(c.cfg.APIs) > 0 {
		flags = append(flags, "--runtime-config="+strings.Join(c.cfg.APIs, "=true,")+"=true")
	}
	return flags
}

// auditPolicy has what nodes ask written down once: a watch when it begins and
// when it ends, anything else when it is answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// audit returns the apiserver's flags for the audit log; none when it is off.
func (c *Cluster) audit() ([]string, error) {
	if !c.cfg.Audit {
		return nil, nil
	}
	policy := c.path("audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	c.AuditLog = c.path("audit.log")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.AuditLog}, nil
}

func (c *Cluster) startControllerManager(ctx context.Context, binary string) error {
	config, port, err := c.component("kube-controller-manager")
	if err != nil {
		return err
	}
	c.ControllerManager = process.New(process.Config{
		Name: "kube-controller-manager", Path: binary, LogFile: c.path("kube-controller-manager.log"),
		Args: append(c.signing(),
			"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+c.path("kcm-certs"),
			"--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
			"--leader-elect=false", "--controllers=*,tokencleaner", "--use-service-account-credentials=true",
			"--root-ca-file="+c.keys.ca.file, "--service-account-private-key-file="+c.keys.serviceAccounts.key,
			"--cluster-signing-cert-file="+c.keys.ca.file, "--cluster-signing-key-file="+c.keys.ca.keyFile(),
		),
		Ready: healthz(port), ReadyWithin: time.Minute,
	})
	return c.ControllerManager.Start(ctx)
}

func (c *Cluster) startScheduler(ctx context.Context, binary string) error {
	config, port, err := c.component("kube-scheduler")
	if err != nil {
		return err
	}
	c.Scheduler = process.New(process.Config{
		Name: "kube-scheduler", Path: binary, LogFile: c.path("kube-scheduler.log"),
		Args: []string{
			"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + c.path("scheduler-certs"),
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--leader-elect=false",
		},
		Ready: healthz(port), ReadyWithin: time.Minute,
	})
	return c.Scheduler.Start(ctx)
}

// component makes what a part needs to talk to the apiserver under its own name,
// and finds it a port.
func (c *Cluster) component(name string) (kubeconfig, port string, err error) {
	client, err := c.keys.ca.issue(name, subject{name: "system:" + name})
	if err != nil {
		return "", "", err
	}
	kubeconfig = c.path(name + ".kubeconfig")
	if err := writeKubeconfig(kubeconfig, c.Server, c.keys.ca.file, client, false); err != nil {
		return "", "", err
	}
	n, err := FreePort()
	return kubeconfig, strconv.Itoa(n), err
}

func (c *Cluster) path(name string) string {
	return filepath.Join(c.cfg.Instance.Path("cluster"), name)
}

func freeURL() (string, error) {
	port, err := FreePort()
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// healthz asks a part whose serving certificate nobody has signed.
func healthz(port string) func(context.Context) error {
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		return get(ctx, &http.Client{Transport: transport}, "https://127.0.0.1:"+port+"/healthz")
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(url + " answers " + res.Status)
	}
	return nil
}
