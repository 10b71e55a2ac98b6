// Package alone keeps a second node agent away from a root directory: two that
// work there stop and remove each other's pods. It must never end anybody.
package alone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/lockfile"
)

const (
	// exitTimeout is how long an agent that was killed may take to be gone.
	exitTimeout = 5 * time.Second
	// answerWithin bounds the wait for a listener with a full queue.
	answerWithin = time.Second
)

// Hold takes the root directory for this process until release is called or the
// process ends. It fails when another agent works there, a kubelet or a podsync,
// and says which. A process in a pod is none, whatever it holds.
func Hold(ctx context.Context, rootDir string) (release func(), err error) {
	return thisMachine().hold(ctx, rootDir, exitTimeout)
}

func (m machine) hold(ctx context.Context, rootDir string, exitTimeout time.Duration) (release func(), err error) {
	if err := m.noKubelet(ctx, rootDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(rootDir, "polylet")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	// The kernel gives the lock back with the process, however that ends.
	soon, cancel := context.WithTimeout(ctx, exitTimeout)
	_, release, err = lockfile.Hold(soon, lockfile.Config{Path: path}, klog.FromContext(ctx))
	cancel() // the lock outlives it
	switch {
	case err == nil:
		return release, nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		pods, err := m.heldByPods(path)
		if pods {
			return takeLater(ctx, path), nil
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Nobody knows whether a process in a pod holds the lock", "path", path)
		}
		return nil, fmt.Errorf("another podsync works in %s (it holds %s): stop that agent first, or choose another --root-dir", rootDir, path)
	default:
		return nil, fmt.Errorf("keep other agents off %s: %w", rootDir, err)
	}
}

// takeLater goes on without the lock, and takes it when the pod lets go of it. Until
// then others see that this process has the file open.
func takeLater(ctx context.Context, path string) (release func()) {
	klog.FromContext(ctx).Info("A process in a pod holds the lock that keeps a second agent away: this agent goes on without it; look for a pod that mounts the root directory",
		"path", path)
	ctx, release = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		_, unlock, err := lockfile.Hold(ctx, lockfile.Config{Path: path}, logr.Discard())
		if err == nil {
			<-ctx.Done()
			unlock()
		}
	}()
	return release
}

// Check says why Hold would fail; nil when it would not.
func Check(ctx context.Context, rootDir string) error {
	release, err := Hold(ctx, rootDir)
	if err != nil {
		return err
	}
	release()
	return nil
}

// noKubelet fails when somebody serves the pod resources of this root directory,
// which every kubelet does while it runs.
func (m machine) noKubelet(ctx context.Context, rootDir string) error {
	path := filepath.Join(rootDir, "pod-resources", "kubelet.sock")
	// Not through a link: whoever may write there could make one to any daemon.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // nobody is there
	}
	defer func() { _ = unix.Close(fd) }()
	dialer := net.Dialer{Timeout: answerWithin}
	conn, err := dialer.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil //nolint:nilerr // a link, or nobody is there
	}
	defer func() { _ = conn.Close() }()
	log := klog.FromContext(ctx)
	switch pod, gone, err := m.podOfServer(conn); {
	case err != nil:
		log.Error(err, "Nobody knows whether a process in a pod serves the pod resources of a kubelet", "path", path)
	case pod != "" || gone:
		// A kubelet listens there itself, so it does not work there any more.
		log.Info("A process in a pod, or one that a process left which has ended, serves the pod resources of a kubelet: look for a pod that mounts their directory",
			"path", path, "cgroup", pod)
		return nil
	}
	return fmt.Errorf("%s works in %s (it serves %s): stop it first (systemctl disable --now kubelet), or choose another --root-dir",
		whose(conn), rootDir, path)
}

// whose names the process that opened the socket at the other end.
func whose(conn net.Conn) string {
	const somebody = "another node agent"
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return somebody
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return somebody
	}
	var who *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { who, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || credErr != nil || who.Pid == 0 {
		return somebody
	}
	pid := strconv.Itoa(int(who.Pid))
	name, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return somebody + ", process " + pid
	}
	return fmt.Sprintf("%s %s, process %s", somebody, strconv.Quote(strings.TrimSpace(string(name))), pid)
}
