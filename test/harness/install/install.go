// Package install makes sure that the machine has what the node tests and the
// development node need from Debian. It must never install or remove anything
// that is not in its list, and never upgrade.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// aptWithin bounds one run of apt-get.
const aptWithin = 10 * time.Minute

// need is a file that must be there and the Debian package that brings it.
type need struct{ path, pkg string }

func needs() []need {
	return []need{
		{"/usr/sbin/runc", "runc"},
		{"/usr/bin/containerd", "containerd"},
		{"/usr/lib/cni/bridge", "containernetworking-plugins"},
		{"/usr/sbin/iptables", "iptables"},
		{"/usr/sbin/ip", "iproute2"},
		{"/usr/bin/busybox", "busybox-static"},
	}
}

// Check tells what keeps a node from running here, without changing anything.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("run a node: it makes namespaces, mounts and cgroups; run this as root")
	}
	if missing := missing(); len(missing) > 0 {
		return fmt.Errorf("run a node: missing on this machine: %s; run `apt-get install %s`, or `make run` which does it",
			strings.Join(missing, ", "), strings.Join(missing, " "))
	}
	return nil
}

// Packages installs the missing packages with apt-get and tells of it.
func Packages(ctx context.Context, progress io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("install packages and run a node: run this as root")
	}
	return get(ctx, progress, missing())
}

// Others is Packages for what only some command needs: packages by a file that
// each brings.
func Others(ctx context.Context, progress io.Writer, packages map[string]string) error {
	var missing []string
	for path, pkg := range packages {
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, pkg)
		}
	}
	slices.Sort(missing)
	return get(ctx, progress, missing)
}

func get(ctx context.Context, progress io.Writer, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s: this machine has no apt-get; install them by its own means", strings.Join(missing, ", "))
	}
	fmt.Fprintf(progress, "installing %s with apt-get …\n", strings.Join(missing, ", "))
	if err := apt(ctx, append([]string{"install", "-y", "--no-install-recommends"}, missing...)...); err != nil {
		// The usual reason on a fresh machine is an empty package list.
		if err := apt(ctx, "update"); err != nil {
			return err
		}
		return apt(ctx, append([]string{"install", "-y", "--no-install-recommends"}, missing...)...)
	}
	return nil
}

// Browser installs the Chromium that the test of the node's page drives, when
// it is missing. Nothing else needs it.
func Browser(ctx context.Context, progress io.Writer) error {
	return Others(ctx, progress, map[string]string{
		"/usr/bin/chromium": "chromium", "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf": "fonts-dejavu-core",
	})
}

// Prometheus is what the test of the metrics is scraped by; nothing else needs it.
const Prometheus = "/usr/bin/prometheus"

// Scraper installs Prometheus when it is missing.
func Scraper(ctx context.Context, progress io.Writer) error {
	return Others(ctx, progress, map[string]string{Prometheus: "prometheus"})
}

// SharedRoot makes / a shared mount when it is not one, for mount propagation
// between the node and its containers needs it. It lasts until the next boot.
func SharedRoot() error {
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("make / a shared mount: %w", err)
	}
	return nil
}

func missing() []string {
	var pkgs []string
	for _, n := range needs() {
		if _, err := os.Stat(n.path); err != nil {
			pkgs = append(pkgs, n.pkg)
		}
	}
	return pkgs
}

func apt(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, aptWithin)
	defer cancel()
	// Another test, or the machine itself, may be installing something.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
