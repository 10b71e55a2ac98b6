package main

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/realtest"
)

// endsWithin bounds the end of a maker that was told to; a stop of each part takes seconds.
const endsWithin = 3 * time.Minute

// A person has had enough at any moment, closes the terminal, or the machine is short of
// memory. What the maker takes away by itself it takes away then; the rest the next start
// does, and `make clean-node`.
func TestAClusterThatIsEndedAtAnyStageLeavesNothing(t *testing.T) {
	realtest.Begin(t, "makes clusters as root", time.Hour)
	if _, err := net.InterfaceByName((&instance.Instance{ID: "cluster"}).Bridge()); err == nil {
		t.Skip("somebody's `make cluster` has the bridge of the one that would be made here")
	}
	stages := []struct {
		command, stage string
		sig            syscall.Signal
		long           bool
	}{
		{"cluster", "building the test images", syscall.SIGKILL, true},
		{"cluster", "starting etcd", syscall.SIGTERM, true},
		{"cluster", "starting kube-controller-manager", syscall.SIGKILL, true},
		{"cluster", "starting polylet", syscall.SIGINT, true},
		{"cluster", "waiting for the node to be Ready", syscall.SIGKILL, true},
		{"cluster", "starting node polylet-dev-2", syscall.SIGHUP, true},
		{"cluster", "starting node polylet-dev-2", syscall.SIGKILL, false},
		{"cluster", "Ctrl-C stops the cluster", syscall.SIGTERM, true},
		{"kubeadm", "building the images", syscall.SIGINT, true},
		{"kubeadm", "kubeadm init", syscall.SIGKILL, true},
		{"kubeadm", "waiting for node polylet-1", syscall.SIGTERM, true},
		{"kubeadm", "kubeadm join", syscall.SIGHUP, true},
		{"kubeadm", "waiting for node polylet-2", syscall.SIGKILL, true},
	}
	m := newMaker(t)
	for _, s := range stages {
		if s.long && os.Getenv("POLYLET_LONG_TESTS") == "" {
			continue
		}
		t.Run(s.command+", "+s.stage+", "+s.sig.String(), func(t *testing.T) {
			m.T = t
			m.endAt(s.command, s.stage, s.sig)
			if s.sig == syscall.SIGKILL {
				m.clean()
			} else {
				m.wantOnlyKept()
			}
			if s.command == "cluster" {
				m.clean()
			}
			m.wantNothing()
		})
	}
}

// maker is the program, with instances of its own.
type maker struct {
	*testing.T
	program, instances string
	// seen are the ids of the instances that there were.
	seen map[string]bool
}

func newMaker(t *testing.T) *maker {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "pls") // short, on a disk: workspace.DefaultInstances
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // services without root have their sockets in it
		t.Fatal(err)
	}
	m := &maker{T: t, program: filepath.Join(t.TempDir(), "node"), instances: filepath.Join(dir, "i"), seen: map[string]bool{}}
	if out, err := exec.Command("go", "build", "-o", m.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build it: %v\n%s", err, out)
	}
	t.Setenv("POLYLET_INSTANCES", m.instances)
	t.Cleanup(func() {
		m.T = t
		m.clean()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return m
}

// endAt starts it, sends the signal when it says the words, and waits for its end.
func (m *maker) endAt(command, words string, sig syscall.Signal) {
	m.Helper()
	cmd := exec.Command(m.program, "-nodes", "2", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	late := time.AfterFunc(15*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	said, all := false, []string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		all = append(all, lines.Text())
		m.look()
		if !said && strings.Contains(lines.Text(), words) {
			said = true
			time.Sleep(500 * time.Millisecond) // it is in the midst of it
			m.look()
			if err := cmd.Process.Signal(sig); err != nil {
				m.Fatal(err)
			}
			late.Reset(endsWithin)
		}
	}
	err = cmd.Wait()
	m.Logf("it ended with %v", err)
	if !said {
		m.Fatalf("it never said %q:\n%s", words, strings.Join(all, "\n"))
	}
	if state, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); state.Signaled() && sig != syscall.SIGKILL {
		m.Errorf("it ended by signal %v and took nothing away:\n%s", state.Signal(), strings.Join(all, "\n"))
	}
}

// look notes which instances there are.
func (m *maker) look() {
	m.Helper()
	entries, err := os.ReadDir(m.instances)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Fatal(err)
	}
	for _, e := range entries {
		m.seen[e.Name()] = true
	}
}

func (m *maker) clean() {
	m.Helper()
	if out, err := exec.Command(m.program, "clean").CombinedOutput(); err != nil {
		m.Errorf("clean: %v\n%s", err, out)
	}
}

// wantOnlyKept says what is there beside the instance that a cluster keeps.
func (m *maker) wantOnlyKept() {
	m.Helper()
	for id := range m.seen {
		if id != "cluster" {
			m.wantGone(id)
		}
	}
}

// wantNothing says what is left of any instance.
func (m *maker) wantNothing() {
	m.Helper()
	for id := range m.seen {
		m.wantGone(id)
	}
	if left, err := os.ReadDir(m.instances); err == nil && len(left) > 0 {
		m.Errorf("instances are left: %v", left)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		m.Fatal(err)
	}
	for _, file := range processes {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), m.instances+"/") {
			m.Errorf("%s runs: %q", filepath.Dir(file), line)
		}
	}
}

func (m *maker) wantGone(id string) {
	m.Helper()
	i := &instance.Instance{ID: id, Dir: filepath.Join(m.instances, id)}
	if _, err := os.Stat(i.Dir); !errors.Is(err, fs.ErrNotExist) {
		m.Errorf("%s is left: %v", i.Dir, err)
	}
	for _, link := range []string{i.Bridge(), i.LAN(), "pv-" + id} {
		if _, err := net.InterfaceByName(link); err == nil {
			m.Errorf("the link %s is left", link)
		}
	}
	if groups, err := i.Cgroups(); err != nil || len(groups) > 0 {
		m.Errorf("cgroups are left: %v, %v", groups, err)
	}
	if mounts, err := i.Mounts(); err != nil || len(mounts) > 0 {
		m.Errorf("mounts are left: %v, %v", mounts, err)
	}
	if pids, err := i.Processes(); err != nil || len(pids) > 0 {
		m.Errorf("processes are left: %v, %v", pids, err)
	}
}
