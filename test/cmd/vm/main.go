// Command vm is behind `make vm` and `make vm-kubeadm`: it boots a Debian with
// systemd and cgroup v2 under qemu, runs the tests of test/vm in it and writes down
// what passed. It must never report a test that it did not see pass.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/vm"
	"github.com/polylet/polylet/test/harness/workspace"
)

// silence is how long the machine may say nothing: everything in it is emulated,
// and a run takes as long as this machine has other things to do. Each wait in it
// has its own end and says so.
const silence = 90 * time.Minute

// edgeVariable says how long the machine's node is kept at the edge of its memory.
const edgeVariable = "POLYLET_EDGE"

func main() {
	k := standalone
	picked := flag.String("run", "", "run the tests whose names match this expression, whatever fails; nothing is written down then")
	flag.BoolFunc("kubeadm", "run kubeadm in the machine, instead of the tests of a standalone node", func(string) error { k = kubeadmNode; return nil })
	flag.BoolFunc("joined", "have the machine join a control plane on this one, and go down at the end", func(string) error { k = joinedNode; return nil })
	flag.BoolFunc("selinux", "have the machine join a control plane on this one, with a kernel that uses SELinux", func(string) error { k = selinuxNode; return nil })
	flag.BoolFunc("fc", "give the machine a Fibre Channel fabric over Ethernet, and a kernel that knows it", func(string) error { k = fcNode; return nil })
	flag.Parse()
	if *picked != "" {
		k = k.only(*picked)
	}
	if long := os.Getenv(edgeVariable); long != "" {
		k.environment += edgeVariable + "=" + long + "\n"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, k); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, k kind) error {
	root, err := workspace.Root()
	if err != nil {
		return err
	}
	if err := install.Packages(ctx, os.Stdout); err != nil {
		return err
	}
	for _, needed := range []map[string]string{vm.Packages(), k.packages} {
		if err := install.Others(ctx, os.Stdout, needed); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("/var/tmp", "polylet-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	payload := filepath.Join(work, "payload")
	if err := fill(ctx, k, root, work, payload); err != nil {
		return err
	}
	var reach map[string]string
	var joins *cluster.Cluster
	if k.cluster {
		c, after, err := join(ctx, payload)
		if err != nil {
			return err
		}
		defer after()
		joins, reach = c, map[string]string{reachedAt: strings.TrimPrefix(c.Server, "https://")}
	}
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := lines{stuck: time.AfterFunc(silence, func() { cancel(fmt.Errorf("the machine said nothing for %s", silence)) })}
	defer out.stuck.Stop()
	c := vm.Config{Image: k.image, Kernel: k.kernel, Wire: k.wire, Payload: payload, Memory: k.memory, Reach: reach, Reboots: k.cluster, Disks: k.disks, Work: work, Output: io.MultiWriter(os.Stdout, &out), Progress: os.Stdout}
	ran := vm.Run(ctx, c)
	if ran != nil && ctx.Err() != nil {
		ran = errors.Join(context.Cause(ctx), ran)
	}
	if console, err := os.ReadFile(c.Console()); err == nil {
		os.MkdirAll(filepath.Join(root, ".cache"), 0o755) // the write below says if that failed
		ran = errors.Join(ran, os.WriteFile(filepath.Join(root, ".cache", k.name+"-console.log"), console, 0o644))
	}
	if ran != nil {
		return ran
	}
	results := out.results()
	var judged error
	if k.judge != nil && strings.Contains(out.text.String(), "--- PASS: TestJoinedTheMachine") {
		verdict := "--- PASS: what the apiserver has of the pods of the machine that is off"
		if judged = k.judge(ctx, joins); judged != nil {
			verdict = strings.Replace(verdict, "PASS", "FAIL", 1) + ": " + judged.Error()
		}
		fmt.Println(verdict)
		results = append(results, verdict)
	}
	if !k.part {
		if err := record(ctx, k, root, began, results); err != nil {
			return err
		}
	}
	if judged != nil {
		return fmt.Errorf("the apiserver does not have what it should: %w", judged)
	}
	if !out.passed() {
		return fmt.Errorf("not every test passed; see above, and .cache/%s-console.log for the machine's console", k.name)
	}
	return nil
}

// fill puts everything that the tests use into the payload.
func fill(ctx context.Context, k kind, root, work, payload string) error {
	builder, err := programs.New(os.Stdout)
	if err != nil {
		return err
	}
	binaries, err := builder.Binaries(ctx, append([]programs.Peer{programs.Containerd(), programs.ContainerdShim()}, k.programs...)...)
	if err != nil {
		return err
	}
	if binaries["polylet"], err = builder.Polylet(ctx); err != nil {
		return err
	}
	if k.driver {
		if binaries["csidriver"], err = builder.CSIDriver(ctx); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(payload, "bin"), 0o755); err != nil {
		return err
	}
	for name, from := range binaries {
		if err := command(ctx, root, "cp", from, filepath.Join(payload, "bin", name)); err != nil {
			return err
		}
	}
	for to, from := range map[string]string{"systemd": "deploy/systemd", "evictions": "test/node/testdata/evictions"} {
		if err := command(ctx, root, "cp", "-r", from, filepath.Join(payload, to)); err != nil {
			return err
		}
	}
	for program, of := range map[string]string{vm.Program: "./test/vm", "bin/volume.test": "./services/podsync/internal/storage/volume", "bin/scsi.test": "./services/podsync/internal/storage/scsi", "bin/projectquota.test": "./services/podsync/internal/storage/projectquota"} {
		if err := command(ctx, root, "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(payload, program), of); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(payload, vm.Environment), []byte(k.environment), 0o644); err != nil {
		return err
	}
	saved := filepath.Join(payload, "images")
	if k.images != nil {
		if err := k.images(ctx, builder, filepath.Join(work, "cluster-images"), saved); err != nil {
			return err
		}
	}
	return images.SaveAll(ctx, filepath.Join(work, "images"), saved)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// lines keeps what the tests print, and that they do.
type lines struct {
	text  strings.Builder
	stuck *time.Timer
}

func (l *lines) Write(p []byte) (int, error) {
	l.stuck.Reset(silence)
	return l.text.Write(p)
}

// results are the lines that end a test, and those with a figure.
func (l *lines) results() []string {
	var ended []string
	for line := range strings.Lines(l.text.String()) {
		if line = strings.TrimRight(line, "\n"); strings.HasPrefix(strings.TrimSpace(line), "--- ") || figure(line) {
			ended = append(ended, line)
		}
	}
	return ended
}

// figure tells what a test has measured from what it waited for.
func figure(line string) bool {
	return strings.Contains(line, "exposure of ") || strings.Contains(line, "memory of ") || strings.Contains(line, "restarts of ")
}

// passed wants the word that the test binary ends with, and a test that passed.
func (l *lines) passed() bool {
	all := strings.Split(l.text.String(), "\n")
	return slices.Contains(all, "PASS") && !slices.Contains(all, "FAIL") && strings.Contains(l.text.String(), "--- PASS: ")
}

// record appends the run to the day's file.
func record(ctx context.Context, k kind, root string, began time.Time, results []string) error {
	dir := filepath.Join(root, "docs", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, k.name+"-"+began.UTC().Format("2006-01-02")+".md"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	commit, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	_, err = fmt.Fprintf(f, "# %s, %s UTC\n\nWritten by `make %s`: commit %s, Debian bookworm under qemu (software emulation) on %d processors with %d MiB, containerd %s, %s.\n\n```\n%s\n```\n\n",
		k.title, began.UTC().Format("2006-01-02 15:04"), k.name, strings.TrimSpace(string(commit)), runtime.NumCPU(), k.memory, programs.Containerd().Version,
		time.Since(began).Round(time.Second), strings.Join(results, "\n"))
	return errors.Join(err, f.Close())
}
