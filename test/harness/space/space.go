// Package space gives a node a machine of its own within this one: namespaces of
// mounts, network, host name and IPC, whose directories and network are an
// instance's. What runs there sees this machine's programs, and may write to what
// the space has of its own only. It must never change a mount, a link or a file of
// the machine but the one end of a cable on the instance's bridge between nodes.
package space

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
)

// Config says what the space is.
type Config struct {
	// Instance owns the directory; its network is the space's from the start on.
	Instance *instance.Instance
	// Name is the host name.
	Name string
	// LAN is the instance whose bridge between nodes the space is connected to,
	// and Number its address there, from 2 on.
	LAN    *instance.Instance
	Number int
	// Overlaid are directories of the machine that the space sees, and may change
	// without the machine noticing.
	Overlaid []string
	// Private are directories that the space has of its own, empty at first, by
	// where it sees them. They need not be there on the machine when they are below
	// an overlaid one.
	Private []string
}

// Space is a running space.
type Space struct {
	// Address is the space's on the bridge between nodes.
	Address string

	cfg    Config
	keeper *process.Process
}

// Programs is where a space finds the programs of its own, before the machine's.
func Programs(i *instance.Instance) string { return i.Path("bin") }

// systemPath finds the machine's programs.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Start makes the namespaces, and the instance's network be in them. They last
// until Stop, or until this process ends, and as long as something runs in them.
func Start(ctx context.Context, cfg Config) (*Space, error) {
	for _, program := range []string{"unshare", "nsenter", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("give node %s namespaces: %w; install the package util-linux or mount", cfg.Name, err)
		}
	}
	s := &Space{cfg: cfg, Address: cfg.LAN.LANAddress(cfg.Number)}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the namespaces of node %s: %w", cfg.Name, err)
	}
	ready := cfg.Instance.Path("space", "ready")
	s.keeper = process.New(process.Config{
		Name: "the namespaces of node " + cfg.Name, Path: "/bin/sh", Args: []string{"-c", s.script(ready)},
		Prefix:  []string{"unshare", "--mount", "--net", "--uts", "--ipc", "--propagation=slave", "--"},
		LogFile: cfg.Instance.Path("space.log"),
		Ready:   func(context.Context) error { _, err := os.Stat(ready); return err },
		// Nothing in it needs time to end.
		ReadyWithin: time.Minute, StopWithin: time.Second,
	})
	if err := s.keeper.Start(ctx); err != nil {
		return nil, err
	}
	cfg.Instance.Inside(s.Prefix())
	if err := s.connect(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop lets the namespaces go; what still runs in them keeps them.
func (s *Space) Stop() { s.keeper.Stop() }

// Prefix is what process.Config's wants, for a process in the space.
func (s *Space) Prefix() []string {
	return []string{"nsenter", "--target=" + strconv.Itoa(s.keeper.Pid()), "--mount", "--net", "--uts", "--ipc", "--"}
}

// Environment is what programs in the space get.
func (s *Space) Environment() []string {
	return []string{"PATH=" + Programs(s.cfg.Instance) + ":" + systemPath, "HOME=" + s.cfg.Instance.Path("home")}
}

// Command is a program that is run in the space.
func (s *Space) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	argv := slices.Concat(s.Prefix(), []string{"env"}, s.Environment(), []string{name}, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 10 * time.Second
	// Nothing keeps the namespaces longer than who asked. (The signal comes with the
	// end of the thread, and threads that nobody has locked stay.)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Run runs a program in the space and returns what it prints; with an error that
// is what the error has.
func (s *Space) Run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := s.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s on node %s: %w\n%s", strings.Join(append([]string{filepath.Base(name)}, args...), " "), s.cfg.Name, err, out)
	}
	return string(out), nil
}

// Shell runs a script in the space.
func (s *Space) Shell(ctx context.Context, script string) (string, error) {
	return s.Run(ctx, "/bin/sh", "-euc", script)
}

func (s *Space) prepare() error {
	i := s.cfg.Instance
	if err := os.Remove(i.Path("space", "ready")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dirs := []string{i.Path("space"), Programs(i), i.Path("home")}
	for _, point := range s.cfg.Overlaid {
		dirs = append(dirs, s.over(point, "upper"), s.over(point, "work"))
	}
	for _, point := range s.cfg.Private {
		dirs = append(dirs, s.own(point))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (s *Space) over(point, kind string) string {
	return s.cfg.Instance.Path("space", "over", point, kind)
}

// Path is where the machine has a private directory of the space.
func (s *Space) Path(point string) string { return s.own(point) }

func (s *Space) own(point string) string { return s.cfg.Instance.Path("space", "own", point) }

// script is what the first process of the namespaces does. Nothing of the machine
// is changed by it: its mounts receive what the machine mounts and unmounts and
// hand nothing back.
func (s *Space) script(ready string) string {
	lines := []string{"set -eu", "mount -t tmpfs -o mode=755 tmpfs /run", "mkdir -p /run/lock /run/netns"}
	for _, point := range s.cfg.Overlaid {
		lines = append(lines, fmt.Sprintf("mount -t overlay overlay -o lowerdir=%s,upperdir=%s,workdir=%s %s",
			point, s.over(point, "upper"), s.over(point, "work"), point))
	}
	for _, point := range s.cfg.Private {
		lines = append(lines, fmt.Sprintf("mkdir -p %s", point), fmt.Sprintf("mount --bind %s %s", s.own(point), point))
	}
	// Mount propagation between the node and its containers.
	lines = append(lines, "mount --make-rshared /", "hostname "+s.cfg.Name)
	if slices.Contains(s.cfg.Overlaid, "/etc") {
		lines = append(lines,
			"echo "+s.cfg.Name+" > /etc/hostname",
			"printf '127.0.0.1 localhost\\n"+s.Address+" "+s.cfg.Name+"\\n' > /etc/hosts",
			"echo nameserver "+s.cfg.LAN.LANAddress(1)+" > /etc/resolv.conf")
	}
	return strings.Join(append(lines, "touch "+ready, "exec sleep infinity"), "\n")
}

// connect puts a cable between the space and the bridge between nodes.
func (s *Space) connect(ctx context.Context) error {
	if err := s.cfg.LAN.AddLAN(); err != nil {
		return err
	}
	near := "pv-" + s.cfg.Instance.ID
	for _, args := range [][]string{
		{"link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(s.keeper.Pid())},
		{"link", "set", near, "master", s.cfg.LAN.LAN(), "up"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("connect node %s: ip %s: %w: %s", s.cfg.Name, strings.Join(args, " "), err, out)
		}
	}
	_, err := s.Shell(ctx, strings.Join([]string{
		"ip link set lo up",
		"ip address add " + s.Address + "/24 dev eth0",
		"ip link set eth0 up",
		"ip route add default via " + s.cfg.LAN.LANAddress(1),
		"echo 1 > /proc/sys/net/ipv4/ip_forward",
	}, "\n"))
	return err
}
