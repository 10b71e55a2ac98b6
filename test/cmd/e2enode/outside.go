package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/suite"
	"github.com/polylet/polylet/test/harness/vm"
	"github.com/polylet/polylet/test/harness/workspace"
)

// runner is what all groups of one command share.
type runner struct {
	options
	root, artifacts string
	// work holds what is needed until the command ends: the images and polylet.
	work, images string
	skips        []suite.Skip
	binaries     map[string]string
	program      string
	// tested names the agent, as of when it was built.
	tested string
}

// errFailed says that the suite ran and polylet failed what the kubelet passes.
var errFailed = errors.New("not every test that the kubelet passes passed")

func run(ctx context.Context, o options) error {
	if o.agent != agentPolylet && o.agent != agentKubelet {
		return fmt.Errorf("no agent %q; use %s or %s", o.agent, agentPolylet, agentKubelet)
	}
	chosen, err := chooseGroups(o.group)
	if err != nil {
		return err
	}
	r, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work) // what stays is in a directory for logs
	var failed error
	for _, g := range chosen {
		err := r.runGroup(ctx, g)
		if err != nil && !errors.Is(err, errFailed) {
			return err
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// prepare builds what is missing.
func prepare(ctx context.Context, o options) (*runner, error) {
	r := &runner{options: o}
	var err error
	if r.root, err = workspace.Root(); err != nil {
		return nil, err
	}
	if r.skips, err = suite.ReadSkips(filepath.Join(r.root, o.skipFile)); err != nil {
		return nil, err
	}
	if err := install.Packages(ctx, os.Stdout); err != nil {
		return nil, err
	}
	if err := install.Others(ctx, os.Stdout, images.SuitePackages()); err != nil {
		return nil, err
	}
	saveImages := images.SaveNodeSuite
	if o.vm {
		if err := install.Others(ctx, os.Stdout, vm.Packages()); err != nil {
			return nil, err
		}
		saveImages = images.LayOutNodeSuite
	}
	builder, err := programs.New(os.Stdout)
	if err != nil {
		return nil, err
	}
	if r.binaries, err = builder.Binaries(ctx, programs.NodeSuite()...); err != nil {
		return nil, err
	}
	if o.agent == agentPolylet {
		r.tested = "polylet, " + programs.Checkout(ctx, r.root)
		r.program, err = builder.Polylet(ctx)
	} else {
		r.tested = "kubelet " + programs.Kubelet().Version
		r.program, err = builder.Binary(ctx, programs.Kubelet())
	}
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(r.root, ".cache", "e2e-node")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	if r.artifacts, err = os.MkdirTemp(logs, time.Now().UTC().Format("20060102-150405")+"-"+o.agent+"-*"); err != nil {
		return nil, fmt.Errorf("make a directory for the logs: %w", err)
	}
	r.work = filepath.Join(r.artifacts, "work")
	r.images = filepath.Join(r.work, "images")
	say("building the images …")
	if err := saveImages(ctx, filepath.Join(r.work, "built"), r.binaries[programs.Agnhost().Name], r.images); err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.work))
	}
	if o.agent == agentPolylet {
		// A build of the checkout while the groups run must not change the agent.
		built := r.program
		r.program = filepath.Join(r.work, "polylet")
		if err := copyFile(built, r.program, 0o755); err != nil {
			return nil, errors.Join(err, os.RemoveAll(r.work))
		}
	}
	return r, nil
}

// runGroup runs one group in a space of its own and writes it down.
func (r *runner) runGroup(ctx context.Context, g group) error {
	o := order{Agent: r.agent, Program: r.program, Artifacts: filepath.Join(r.artifacts, g.name), Images: r.images}
	if err := os.MkdirAll(o.Artifacts, 0o755); err != nil {
		return err
	}
	say("group %s on %s: %s; logs in %s", g.name, r.tested, g.about, o.Artifacts)
	began := time.Now()
	runIn := r.runInSpace
	if r.vm {
		runIn = r.runInMachine
	}
	suiteErr := runIn(ctx, g, o)
	run, err := suite.ReadRun(filepath.Join(o.Artifacts, reportName))
	if err != nil {
		return errors.Join(suiteErr, err)
	}
	machine := suite.DescribeMachine()
	if r.vm {
		if machine, err = described(o.Artifacts); err != nil {
			return err
		}
	}
	rec := record{
		runner: r, machine: machine, group: g, began: began, took: time.Since(began), results: run.Results, chosen: run.Chosen, cut: run.Cut,
	}
	if suiteErr != nil && !started(run.Results) {
		return fmt.Errorf("%w; no test ran, see suite.log and kubelet.log in %s", suiteErr, o.Artifacts)
	}
	return rec.writeDown()
}

// started tells whether the suite got as far as a test: when its own
// preparation fails, that is all that its report holds.
func started(results suite.Results) bool {
	return slices.ContainsFunc(results, func(r suite.Result) bool { return !strings.HasSuffix(r.Name, "BeforeSuite") })
}

// runInSpace makes an instance, starts process 1 of its namespaces and waits for
// its end. What is left goes with the sweeper, also when this process is killed.
func (r *runner) runInSpace(ctx context.Context, g group, o order) error {
	inst, err := instance.New()
	if err != nil {
		return err
	}
	defer inst.Release()
	if err := r.furnish(inst, g, &o); err != nil {
		return errors.Join(err, inst.Remove())
	}
	file, err := o.save()
	if err != nil {
		return errors.Join(err, inst.Remove())
	}
	swept, err := startSweeper(o, inst.ID)
	if err != nil {
		return errors.Join(err, inst.Remove())
	}
	defer swept()
	cmd := exec.CommandContext(ctx, filepath.Join(o.Bin, "e2enode"), roleInit, file)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: spaceFlags, Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = interruptWithin + stopWithin + 10*time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("group %s: %w", g.name, err)
	}
	return nil
}

// furnish fills the instance's directory and completes the order.
func (r *runner) furnish(inst *instance.Instance, g group, o *order) error {
	o.Dir, o.Cgroup, o.Bin = inst.Dir, inst.CgroupRoot(), inst.Path("bin")
	o.Suite, o.Ginkgo = r.binaries[programs.E2ENodeTest().Name], r.binaries[programs.Ginkgo().Name]
	o.Containerd, o.Shims = r.binaries[programs.Containerd().Name], filepath.Dir(r.binaries[programs.ContainerdShim().Name])
	o.DiskBytes, o.Logind = g.disk, g.logind
	o.Ginkgos, o.Flags = r.ginkgoArguments(*o, g), suiteFlags(*o, g)
	if err := os.MkdirAll(o.Bin, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// go run's own place may be below /tmp, which is another one inside.
	if err := copyFile(self, filepath.Join(o.Bin, "e2enode"), 0o755); err != nil {
		return err
	}
	if err := copyFile("/proc/self/mountinfo", o.path("mountinfo"), 0o600); err != nil {
		return err
	}
	return linkStandIns(*o)
}

// ginkgoArguments choose the tests.
func (r *runner) ginkgoArguments(o order, g group) []string {
	procs, timeout := g.procs, g.timeout
	if r.procs > 0 {
		procs = r.procs
	}
	if r.timeout > 0 {
		timeout = r.timeout
	}
	args := []string{
		"--procs=" + strconv.Itoa(procs), "--seed=" + strconv.Itoa(r.seed), "--timeout=" + timeout.String(),
		"--output-dir=" + o.Artifacts, "--json-report=" + reportName, "--no-color", "--output-interceptor-mode=none",
		"--silence-skips", "--keep-going", "--grace-period=30s",
	}
	for _, file := range g.files {
		args = append(args, "--focus-file="+file)
	}
	focus := g.focus
	if r.focus != "" {
		focus = bothOrders(g.focus, r.focus)
	}
	for _, f := range focus {
		args = append(args, "--focus="+f)
	}
	for _, s := range g.skip {
		args = append(args, "--skip="+s)
	}
	for _, s := range r.skips {
		args = append(args, "--skip="+s.Expression)
	}
	return args
}

// bothOrders are expressions for names that match one of the group's and the
// given one, whichever comes first: ginkgo joins expressions by "or".
func bothOrders(group []string, given string) []string {
	if len(group) == 0 {
		return []string{given}
	}
	var all []string
	for _, f := range group {
		all = append(all, "(?:"+f+").*(?:"+given+")", "(?:"+given+").*(?:"+f+")")
	}
	return all
}

// startSweeper starts the process that removes the instance when the returned
// function is called or this process is gone, however that happens.
func startSweeper(o order, id string) (finish func(), err error) {
	cmd := exec.Command(filepath.Join(o.Bin, "e2enode"), roleSweep, id)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			say("cleaning up: %v", err)
		}
	}, nil
}

// sweepWithin bounds the wait for killed processes to leave their cgroups.
const sweepWithin = time.Minute

// sweep waits for the end of its parent's interest and removes the instance.
func sweep(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("sweep: want the id of an instance, got %q", args)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	inst, err := instance.Find(args[0])
	if err != nil {
		return err
	}
	deadline := time.Now().Add(sweepWithin)
	for {
		err := inst.Remove()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(500 * time.Millisecond) // process 1 takes its processes with it, one by one
	}
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// oneLineOf is a test's name as it stands in a list.
func oneLineOf(name string) string { return strings.Join(strings.Fields(name), " ") }
