package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/polylet/polylet/test/harness/vm"
)

const (
	// reachedAt is where the machine has the apiserver.
	reachedAt = "10.0.2.100:6443"
	// agentPort is where the apiserver has the agent, for logs and what is run in
	// containers.
	agentPort = "10250"
)

// beside is `@beside WORK ARTIFACTS SUITE`, in a network of its own: it runs the suite's
// control plane here, where the processor is a real one, and the machine beside it. The
// apiserver takes the port that every other takes, and reaches the node by its address.
func beside(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("run a machine and its control plane: want three arguments, got %q", args)
	}
	work, artifacts, suite := args[0], args[1], args[2]
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := makeNetworkBeside(); err != nil {
		return err
	}
	payload := filepath.Join(work, "payload")
	o, err := readOrder([]string{filepath.Join(payload, orderName)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped, err := startControlPlane(o, suite, work, artifacts, cancel)
	if err != nil {
		return err
	}
	defer stopped()
	c := vm.Config{
		Payload: payload, Memory: machineMemory, Kept: artifacts, Work: work, Output: os.Stdout, Progress: os.Stdout,
		Reach: map[string]string{reachedAt: "127.0.0.1:6443"}, Open: []string{agentPort},
	}
	ran := vm.Run(ctx, c)
	if ctx.Err() != nil {
		ran = errors.Join(context.Cause(ctx), ran)
	}
	if console, err := os.ReadFile(c.Console()); err == nil {
		ran = errors.Join(ran, os.WriteFile(filepath.Join(artifacts, "console.log"), console, 0o644))
	}
	return ran
}

// makeNetworkBeside gives this network the machine's address, and a way to nowhere: the
// apiserver wants one.
func makeNetworkBeside() error {
	for _, command := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", vm.Address + "/32", "dev", "lo"},
		// qemu passes on who asks: the machine drops what comes from its own address.
		{"route", "change", "local", vm.Address, "dev", "lo", "proto", "kernel", "scope", "host", "src", "127.0.0.1", "table", "local"},
		{"link", "add", nearLink, "type", "veth", "peer", "name", farLink},
		{"address", "add", nearAddress + "/24", "dev", nearLink},
		{"link", "set", nearLink, "up"},
		{"link", "set", farLink, "up"},
		{"route", "add", "default", "via", farAddress},
	} {
		if err := ip(command...); err != nil {
			return err
		}
	}
	return nil
}

// startControlPlane starts etcd, apiserver and namespace controller as the suite does
// itself. Whoever waits hears from lost when they end.
func startControlPlane(o order, suite, work, artifacts string, lost context.CancelCauseFunc) (stopped func(), err error) {
	log, err := os.Create(filepath.Join(artifacts, "services.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(suite, append([]string{"--run-services-mode"}, o.Flags...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, log, log
	// Here it is not where the machine reaches it.
	cmd.Args = append(cmd.Args, "--host=https://127.0.0.1:6443", "--report-dir="+artifacts)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), log.Close())
	}
	ended := make(chan struct{})
	go func() {
		lost(fmt.Errorf("the control plane has ended: %v; see %s", cmd.Wait(), log.Name()))
		close(ended)
	}()
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
		log.Close()
	}, nil
}
