package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/storage"
	"github.com/polylet/polylet/test/harness/suite"
)

const (
	reportName = "report.json"
	// interruptWithin is how long the suite may clean up after an interrupt.
	interruptWithin = 90 * time.Second
)

// runSuite runs the suite and returns when it ended. An error says that it
// failed, or could not run.
func (m *machine) runSuite(ctx context.Context, o options, skips []suite.Skip) (ended time.Time, err error) {
	log, err := os.Create(filepath.Join(o.artifacts, "suite.log"))
	if err != nil {
		return time.Now(), fmt.Errorf("run the suite: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, m.binaries["ginkgo"], m.suiteArguments(o, skips)...)
	cmd.Dir = m.Instance.Path()
	// Without it the suite leaves out what csi-hostpath does with groups of snapshots.
	cmd.Env = append(os.Environ(), "CSI_PROW_ENABLE_GROUP_SNAPSHOT=true")
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

func (m *machine) suiteArguments(o options, skips []suite.Skip) []string {
	args := []string{
		"--procs=" + strconv.Itoa(o.procs), "--focus=" + o.focus, "--timeout=" + o.timeout.String(),
		"--output-dir=" + o.artifacts, "--json-report=" + reportName, "--no-color", "--output-interceptor-mode=none",
		"--silence-skips", "--keep-going",
	}
	for _, s := range skips {
		args = append(args, "--skip="+s.Expression)
	}
	args = append(args, m.binaries["e2e.test"], "--",
		"--kubeconfig="+m.Cluster.AdminKubeconfig, "--kubectl-path="+m.Cluster.Kubectl,
		"--provider=skeleton", "--num-nodes=1", "--kubelet-root-dir="+m.Node.RootDir, "--dump-logs-on-failure=false",
	)
	if m.storage != nil {
		args = append(args, "--storage.testdriver="+filepath.Join(o.root, storage.Definition))
	}
	return args
}
