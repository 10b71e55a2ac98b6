package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	reportName = "report.json"
	// interruptWithin is how long the suite may clean up after an interrupt.
	interruptWithin = 90 * time.Second
)

// skip is one line of the skip file.
type skip struct{ expression, reason string }

// readSkips reads lines of the form "REGEXP # REASON".
func readSkips(path string) ([]skip, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what to skip: %w", err)
	}
	defer f.Close()
	var skips []skip
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expression, reason, _ := strings.Cut(line, " # ")
		s := skip{strings.TrimSpace(expression), strings.TrimSpace(reason)}
		if s.reason == "" {
			return nil, fmt.Errorf("%s line %d: no reason; write it behind the expression, after ' # '", path, n)
		}
		if _, err := regexp.Compile(s.expression); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, n, err)
		}
		skips = append(skips, s)
	}
	return skips, lines.Err()
}

// runSuite runs the suite and returns when it ended. An error says that it
// failed, or could not run.
func (m *machine) runSuite(ctx context.Context, o options, skips []skip) (ended time.Time, err error) {
	log, err := os.Create(filepath.Join(o.artifacts, "suite.log"))
	if err != nil {
		return time.Now(), fmt.Errorf("run the suite: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, m.binaries["ginkgo"], m.suiteArguments(o, skips)...)
	cmd.Dir = m.inst.Path()
	cmd.Stdout = io.MultiWriter(os.Stdout, log)
	cmd.Stderr = cmd.Stdout
	// A group of its own: the interrupt reaches the suite once, from here.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = interruptWithin
	say("running the suite, focus %s, %d at once …", o.focus, o.procs)
	err = cmd.Run()
	if err != nil {
		err = fmt.Errorf("run the suite: %w", err)
	}
	return time.Now(), err
}

func (m *machine) suiteArguments(o options, skips []skip) []string {
	args := []string{
		"--procs=" + strconv.Itoa(o.procs), "--focus=" + o.focus, "--timeout=" + o.timeout.String(),
		"--output-dir=" + o.artifacts, "--json-report=" + reportName, "--no-color", "--output-interceptor-mode=none",
		"--silence-skips", "--keep-going",
	}
	for _, s := range skips {
		args = append(args, "--skip="+s.expression)
	}
	return append(args, m.binaries["e2e.test"], "--",
		"--kubeconfig="+m.cluster.AdminKubeconfig, "--kubectl-path="+m.cluster.Kubectl,
		"--provider=skeleton", "--num-nodes=1", "--dump-logs-on-failure=false",
	)
}
