// Package storage is what the upstream suite wants of a cluster for its storage tests: the
// definitions and the controller of snapshots, and a CSI driver of its own beside the node.
// It must never touch a cluster or a node that it was not given.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

// Config says where to run.
type Config struct {
	Instance *instance.Instance
	Cluster  *cluster.Cluster
	// Node is the node's name, and RootDir the directory of its agent.
	Node, RootDir string
	// Progress receives lines about builds and starts.
	Progress io.Writer
}

// Storage are the running parts.
type Storage struct {
	cfg     Config
	running []*process.Process
}

// Start starts everything and returns when the snapshot controller serves. The driver is
// there when the agent registers it.
func Start(ctx context.Context, cfg Config) (*Storage, error) {
	s := &Storage{cfg: cfg}
	for _, step := range []func(context.Context) error{s.startSnapshots, s.startDriver} {
		if err := step(ctx); err != nil {
			s.Stop()
			return nil, err
		}
	}
	return s, nil
}

// Stop stops everything, in the reverse order of the start.
func (s *Storage) Stop() {
	for _, p := range slices.Backward(s.running) {
		p.Stop()
	}
}

func (s *Storage) start(ctx context.Context, cfg process.Config) error {
	p := process.New(cfg)
	if err := p.Start(ctx); err != nil {
		return err
	}
	s.running = append(s.running, p)
	return nil
}

// kubectl has the cluster's administrator do something, with what is read from stdin.
func (s *Storage) kubectl(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, s.cfg.Cluster.Kubectl, append([]string{"--kubeconfig=" + s.cfg.Cluster.AdminKubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (s *Storage) startSnapshots(ctx context.Context) error {
	cfg := s.cfg
	builder, err := programs.New(cfg.Progress)
	if err != nil {
		return err
	}
	binary, err := builder.Binary(ctx, programs.SnapshotController())
	if err != nil {
		return err
	}
	definitions, err := builder.SnapshotDefinitions(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(cfg.Progress, "starting the snapshot controller …")
	if err := s.kubectl(ctx, "", "create", "-k", definitions); err != nil {
		return err
	}
	port, err := cluster.FreePort()
	if err != nil {
		return err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return s.start(ctx, process.Config{
		Name: "snapshot-controller", Path: binary, LogFile: cfg.Instance.Path("cluster", "snapshot-controller.log"),
		Args: []string{
			"--kubeconfig=" + cfg.Cluster.AdminKubeconfig, "--http-endpoint=" + address, "--v=5",
			"--feature-gates=CSIVolumeGroupSnapshot=true", "--kube-api-qps=50", "--kube-api-burst=100",
		},
		Ready: func(ctx context.Context) error { return serves(ctx, "http://"+address+"/metrics") },
	})
}

func serves(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(url + " says " + res.Status)
	}
	return nil
}
