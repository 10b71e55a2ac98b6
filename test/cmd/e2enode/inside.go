package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakelogind"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/registry"
)

const (
	reportName = "report.json"
	// interruptWithin is how long the suite may clean up after an interrupt.
	interruptWithin = 60 * time.Second
	// busyBox is pulled for its second name: the suite asks for the published
	// image by its digest, which an image of our own cannot have.
	busyBox         = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
	busyBoxByDigest = "registry.k8s.io/e2e-test-images/busybox@sha256:a9155b13325b2abef48e71de77bb8ac015412a566829f621d06bfae5c699b1b9"
)

// kubeletConfig is the suite's own default configuration, with what a machine
// without systemd and with cgroup v1 needs, and low thresholds: its disk is
// shared.
func kubeletConfig(cgroupDriver string) string {
	return strings.ReplaceAll(kubeletSettings, "@DRIVER@", cgroupDriver)
}

const kubeletSettings = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: @DRIVER@
cgroupRoot: /
failCgroupV1: false
failSwapOn: false
podCIDR: 10.100.0.0/24
volumeStatsAggPeriod: 10s
fileCheckFrequency: 10s
evictionPressureTransitionPeriod: 30s
evictionHard:
  memory.available: 250Mi
  nodefs.available: 1%
  nodefs.inodesFree: 1%
serializeImagePulls: false
`

// inside runs what belongs to the run: registry, containerd, units, suite.
func inside(args []string) error {
	o, err := readOrder(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serveImages(ctx, o.Images); err != nil {
		return err
	}
	runtime, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn, err := keepContainerd(runtime, o)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := nameBusyBox(ctx, conn); err != nil {
		return err
	}
	bus, err := serveLogind(o)
	if err != nil {
		return err
	}
	defer bus.Close()
	listener, err := net.Listen("unix", unitSocket)
	if err != nil {
		return err
	}
	defer listener.Close()
	u := newUnits(o)
	go u.serve(listener)
	defer u.stopAll()
	return runSuite(ctx, o)
}

func serveImages(ctx context.Context, saved string) error {
	r, err := registry.Start("") // ends with the process
	if err != nil {
		return err
	}
	if err := images.PushDir(ctx, r, saved); err != nil {
		return err
	}
	return r.WriteHosts("/etc/containerd/certs.d")
}

// busVariable is where programs find the system's bus.
const busVariable = "DBUS_SYSTEM_BUS_ADDRESS"

// logindDelays is more than any of the suite's periods together.
const logindDelays = 10 * time.Minute

// noBus is that of a run without logind.
type noBus struct{}

func (noBus) Close() {}

// serveLogind starts a logind if the run has one, which the suite and the agent find.
func serveLogind(o order) (interface{ Close() }, error) {
	if !o.Logind {
		return noBus{}, nil
	}
	const dir = "/run/dbus"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	server, err := fakelogind.Start(dir, "", logindDelays)
	if err != nil {
		return nil, err
	}
	return server, os.Setenv(busVariable, server.Address)
}

func nameBusyBox(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := runtimeapi.NewImageServiceClient(conn).PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: busyBox}})
	if err != nil {
		return fmt.Errorf("pull %s: %w", busyBox, err)
	}
	for _, args := range [][]string{
		{"tag", busyBox, busyBoxByDigest},
		// The tests of image collection pull everything again that was
		// collected, and by this name nothing can be pulled.
		{"label", busyBoxByDigest, "io.cri-containerd.pinned=pinned"},
	} {
		cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io", "images"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("name %s by its digest: %w: %s", busyBox, err, out)
		}
	}
	return nil
}

func runSuite(ctx context.Context, o order) error {
	work := o.path("work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "kubeletconfig.yaml"), []byte(kubeletConfig(o.cgroupDriver())), 0o644); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.Artifacts, "suite.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// ginkgo runs the suite where it finds it, and the suite writes there.
	suite := filepath.Join(work, "e2e_node.test")
	if err := os.Symlink(o.Suite, suite); err != nil {
		return err
	}
	if o.Machine {
		stopped, err := startAgent(ctx, o, work, suite)
		if err != nil {
			return err
		}
		defer stopped()
		if err := receiveAsANode(ctx, "https://"+reachedAt, o.Token); err != nil {
			return err
		}
	}
	args := append(append([]string{}, o.Ginkgos...), suite, "--")
	cmd := exec.CommandContext(ctx, o.Ginkgo, append(args, o.Flags...)...)
	cmd.Dir = work
	cmd.Stdout = io.MultiWriter(os.Stdout, log)
	cmd.Stderr = cmd.Stdout
	// A group of its own: the interrupt reaches the suite once, from here.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return groupOf(cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = interruptWithin
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		return &exitError{ended.ExitCode()}
	}
	return err
}

// suiteFlags are the arguments of the suite itself.
func suiteFlags(o order, g group) []string {
	prepull, within, runtimeCgroup := "true", "5m", containerdCgroup
	if o.Machine {
		// Each image is pulled by whoever asks for it: most that the suite names are of
		// tests that do not run, and an emulated processor takes minutes for all of them.
		prepull, within, runtimeCgroup = "false", "30m", "/system.slice/containerd.service"
		g.flags = append([]string{"--start-services=false", "--host=https://" + reachedAt, "--bearer-token=" + o.Token}, g.flags...)
	}
	flags := []string{
		"--node-name=" + nodeName, "--container-runtime-endpoint=unix://" + containerdSocket,
		"--container-runtime-process-name=" + o.Containerd, "--container-runtime-pid-file=",
		"--k8s-bin-dir=" + o.Bin, "--report-dir=" + o.Artifacts, "--kubelet-config-file=kubeletconfig.yaml",
		"--dns-domain=cluster.local", "--prepull-images=" + prepull, "--server-start-timeout=" + within,
		"--kubelet-flags=--cluster-domain=cluster.local", "--kubelet-flags=--runtime-cgroups=" + runtimeCgroup,
	}
	for _, flag := range g.kubelet {
		flags = append(flags, "--kubelet-flags="+flag)
	}
	return append(flags, g.flags...)
}
