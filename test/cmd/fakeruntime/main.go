// Command fakeruntime serves CRI v1 on a Unix socket, as a program of its own:
// sandboxes, containers and images that exist in memory only, so that what an
// agent costs is seen without what a runtime costs. It answers at once, or as
// slowly and unreliably as its flags say.
//
// A second socket, for whoever measures, says how often each method was called
// and ends containers; see control.go.
//
// It must never run a process, or stand where a user would have a runtime.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func main() {
	var s settings
	flag.StringVar(&s.socket, "socket", "", "Unix socket of the CRI")
	flag.StringVar(&s.control, "control", "", "Unix socket of the control")
	flag.StringVar(&s.imageDir, "image-dir", "/", "directory that the runtime calls its image filesystem")
	flag.StringVar(&s.images, "images", "", "comma-separated names of the images that are present; any other can be pulled")
	flag.BoolVar(&s.logs, "logs", false, "make the containers' log files")
	flag.DurationVar(&s.trouble.delay, "delay", 0, "how long a call that changes something takes")
	flag.DurationVar(&s.trouble.jitter, "jitter", 0, "up to how much longer it may take")
	flag.Float64Var(&s.trouble.hangShare, "hang-share", 0, "share of those calls, 0 to 1, that take -hang-for instead")
	flag.DurationVar(&s.trouble.hangFor, "hang-for", 30*time.Second, "see -hang-share")
	flag.Float64Var(&s.trouble.failShare, "fail-share", 0, "share of those calls that end with DeadlineExceeded and without effect")
	flag.Int64Var(&s.trouble.seed, "seed", 1, "decides which calls hang and fail")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type settings struct {
	socket, control, imageDir, images string
	logs                              bool
	trouble                           trouble
}

func run(ctx context.Context, s settings) error {
	if s.socket == "" || s.control == "" {
		return errors.New("-socket and -control must be set")
	}
	again := newStarts()
	cfg := fakecri.Config{
		Forgetful: true, ImageDir: s.imageDir, WriteLogs: s.logs, CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
		Faults: s.trouble.faults(), OnTransition: again.transition,
	}
	if s.images != "" {
		cfg.Images = strings.Split(s.images, ",")
	}
	runtime := fakecri.New(cfg)
	defer runtime.Close()
	l, err := net.Listen("unix", s.control)
	if err != nil {
		return fmt.Errorf("listen on %s for the control: %w", s.control, err)
	}
	server := &http.Server{Handler: control(runtime, again), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer server.Close()
	// Last: who finds this socket finds the other one.
	if err := runtime.ListenUnix(s.socket); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		return fmt.Errorf("serve the control on %s: %w", s.control, err)
	}
}
