// Package services runs what makes a cluster's services work: the real kube-proxy and
// CoreDNS, and a way for pods to the apiserver. kube-proxy's chains have fixed names and
// belong to the whole machine, so there is one at a time, and it must never leave its
// chains behind.
package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

// domain is the cluster's, as the node's configuration says too.
const domain = "cluster.local"

// Config says what to run.
type Config struct {
	Instance *instance.Instance
	Cluster  *cluster.Cluster
	// Node is the name of the node whose kube-proxy it is.
	Node string
	// Progress receives lines about builds and starts.
	Progress io.Writer
}

// Services are the running parts.
type Services struct {
	cfg        Config
	binaries   map[string]string
	proxy, dns *process.Process
	apiserver  net.Listener
	release    func()
}

// Overrides are the fields of the node's configuration that send pods to the
// cluster's names.
func Overrides(i *instance.Instance) map[string]any {
	return map[string]any{"clusterDNS": []string{i.PodGateway()}, "clusterDomain": domain}
}

// Start starts both and returns when names are answered. It is an error when
// another kube-proxy of a test runs on the machine.
func Start(ctx context.Context, cfg Config) (*Services, error) {
	builder, err := programs.New(cfg.Progress)
	if err != nil {
		return nil, err
	}
	s := &Services{cfg: cfg}
	if s.binaries, err = builder.Binaries(ctx, programs.KubeProxy(), programs.CoreDNS()); err != nil {
		return nil, err
	}
	if s.release, err = lock(); err != nil {
		return nil, err
	}
	if err := mark(s.binaries["kube-proxy"]); err != nil {
		s.release()
		return nil, err
	}
	fmt.Fprintln(cfg.Progress, "starting kube-proxy and CoreDNS …")
	for _, step := range []func() error{
		cfg.Instance.AddBridge, cfg.Instance.RouteServicesToPods,
		func() error { return s.serveAPIServer(ctx) }, func() error { return s.startDNS(ctx) }, func() error { return s.startProxy(ctx) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

// lock is an abstract socket: it ends with the process, however that ends.
func lock() (func(), error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@polylet-test-kube-proxy", Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errors.New("start kube-proxy: that of another test runs on this machine, and two would undo each other's rules; try again when it has ended")
	}
	if err != nil {
		return nil, fmt.Errorf("start kube-proxy: %w", err)
	}
	return func() { l.Close() }, nil
}

func (s *Services) startProxy(ctx context.Context) error {
	i := s.cfg.Instance
	health, err := cluster.FreePort()
	if err != nil {
		return err
	}
	metrics, err := cluster.FreePort()
	if err != nil {
		return err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(health))
	s.proxy = process.New(process.Config{
		Name: "kube-proxy", Path: s.binaries["kube-proxy"], LogFile: i.Path("cluster", "kube-proxy.log"),
		Args: []string{
			"--kubeconfig=" + s.cfg.Cluster.AdminKubeconfig, "--hostname-override=" + s.cfg.Node,
			"--proxy-mode=iptables", "--cluster-cidr=" + i.PodCIDR(), "--nodeport-addresses=" + i.PodGateway() + "/32",
			"--healthz-bind-address=" + address, "--metrics-bind-address=127.0.0.1:" + strconv.Itoa(metrics),
			// The machine's own settings stay as they are.
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		},
		Ready: func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/livez", nil)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return errors.New("kube-proxy says " + res.Status)
			}
			return nil
		},
		ReadyWithin: time.Minute,
	})
	return s.proxy.Start(ctx)
}

func (s *Services) startDNS(ctx context.Context) error {
	i := s.cfg.Instance
	file := i.Path("cluster", "Corefile")
	text := fmt.Sprintf(".:53 {\n  bind %s\n  errors\n  kubernetes %s in-addr.arpa {\n    kubeconfig %s\n    ttl 5\n  }\n}\n",
		i.PodGateway(), domain, s.cfg.Cluster.AdminKubeconfig)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("configure CoreDNS: %w", err)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(i.PodGateway(), "53"))
	}}
	s.dns = process.New(process.Config{
		Name: "coredns", Path: s.binaries["coredns"], LogFile: i.Path("cluster", "coredns.log"), Args: []string{"-conf", file},
		Ready: func(ctx context.Context) error {
			_, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+domain+".")
			return err
		},
		ReadyWithin: time.Minute,
	})
	return s.dns.Start(ctx)
}

// Stop stops both and removes kube-proxy's rules.
func (s *Services) Stop() error {
	defer s.release()
	if s.apiserver != nil {
		_ = s.apiserver.Close() // What it holds ends with this process.
	}
	if s.dns != nil {
		s.dns.Stop()
	}
	if s.proxy != nil {
		s.proxy.Stop()
	}
	return cleanup()
}
