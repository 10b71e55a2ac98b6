// Package fakeruntime runs test/cmd/fakeruntime for a measurement: a CRI v1
// runtime of an instance's own that has no processes, so that thousands of pods
// fit on a small machine. It must never stand where a test wants a real runtime.
package fakeruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

// Config says what to run.
type Config struct {
	// Instance owns the sockets and the log.
	Instance *instance.Instance
	// Images are present from the start.
	Images []string
	// Flags are further flags of the program, such as -delay=2s.
	Flags []string
	// Progress receives lines about the build.
	Progress io.Writer
}

// Runtime is a running fake.
type Runtime struct {
	// Process can be stopped, killed and started again; its pods go with it.
	*process.Process

	socket  string
	control *http.Client
}

// Start builds the program and starts it. It returns when the CRI's socket is
// there.
func Start(ctx context.Context, cfg Config) (*Runtime, error) {
	builder, err := programs.New(cfg.Progress)
	if err != nil {
		return nil, err
	}
	binary, err := builder.FakeRuntime(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := cfg.Instance.Mkdir("image-fs")
	if err != nil {
		return nil, err
	}
	r := &Runtime{socket: cfg.Instance.Path("cri.sock")}
	control := cfg.Instance.Path("cri-control.sock")
	r.control = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", control)
	}}}
	r.Process = process.New(process.Config{
		Name: "fakeruntime", Path: binary, LogFile: cfg.Instance.Path("fakeruntime.log"),
		Args: append([]string{
			"-socket=" + r.socket, "-control=" + control, "-image-dir=" + dir, "-logs", "-images=" + strings.Join(cfg.Images, ","),
		}, cfg.Flags...),
		Ready: func(context.Context) error { _, err := os.Stat(r.socket); return err },
	})
	return r, r.Process.Start(ctx)
}

// Endpoint is the socket as containerRuntimeEndpoint wants it.
func (r *Runtime) Endpoint() string { return "unix://" + r.socket }

// Calls returns how often each method of the CRI was called since the start.
func (r *Runtime) Calls(ctx context.Context) (map[string]int, error) {
	calls := map[string]int{}
	return calls, r.ask(ctx, http.MethodGet, "/calls", &calls)
}

// Exit ends a container of the pod and returns after how long the agent had it
// running again, as the runtime saw it.
func (r *Runtime) Exit(ctx context.Context, pod string) (time.Duration, error) {
	var said struct {
		Seconds float64 `json:"restart_seconds"`
	}
	err := r.ask(ctx, http.MethodPost, "/exit?pod="+url.QueryEscape(pod), &said)
	return time.Duration(said.Seconds * float64(time.Second)), err
}

func (r *Runtime) ask(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://fakeruntime"+path, nil)
	if err != nil {
		return err
	}
	res, err := r.control.Do(req)
	if err != nil {
		return fmt.Errorf("ask the fake runtime for %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("ask the fake runtime for %s: %s: %w", path, res.Status, err)
	}
	return nil
}
