package criconfig

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/env"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/labels"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/security"
)

// Container builds a container's configuration. Errors are *Error where
// Kubernetes has a reason for them.
func (b *Builder) Container(ctx context.Context, r Request) (*runtimeapi.ContainerConfig, error) {
	c, _ := podutil.Container(r.Pod, r.Container)
	if c == nil {
		return nil, fmt.Errorf("pod %s/%s has no container %q", r.Pod.Namespace, r.Pod.Name, r.Container)
	}
	config, err := b.container(ctx, r, c)
	if err != nil {
		return nil, reason.New(reasonConfig, err)
	}
	return config, nil
}

func (b *Builder) container(ctx context.Context, r Request, c *v1.Container) (*runtimeapi.ContainerConfig, error) {
	b.machine.look()
	pod := r.Pod
	if pod.Spec.HostNetwork && len(r.PodIPs) == 0 {
		r.PodIPs = b.deps.HostIPs()
	}
	vars, err := b.environment(ctx, r, c)
	if err != nil {
		return nil, err
	}
	context, mounts, devices, err := b.surroundings(ctx, r, c, vars)
	if err != nil {
		return nil, err
	}
	annotations, err := labels.ContainerAnnotations(pod, c, r.RestartCount, r.Backoff)
	if err != nil {
		return nil, err
	}
	if r.Round > 0 {
		annotations[cri.AnnotationRound] = strconv.Itoa(r.Round)
	}
	if err := os.MkdirAll(filepath.Join(b.logDir(pod), c.Name), 0o755); err != nil {
		return nil, fmt.Errorf("make the container's log directory: %w", err)
	}
	command, args, err := commandLine(c, vars)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(r.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: r.ImageRef, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        keyValues(vars),
		Mounts:      mounts,
		Devices:     devices,
		Labels:      labels.ContainerLabels(pod, c.Name),
		Annotations: annotations,
		LogPath:     filepath.Join(c.Name, strconv.Itoa(r.RestartCount)+".log"),
		Stdin:       c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{Resources: b.containerResources(pod, c), SecurityContext: context},
	}
	if b.cfg.NoStopSignals {
		return config, nil
	}
	return config, stopSignal(config, c)
}

// surroundings are what a container may do and what it sees of the machine.
func (b *Builder) surroundings(ctx context.Context, r Request, c *v1.Container, vars map[string]string) (*runtimeapi.LinuxContainerSecurityContext, []*runtimeapi.Mount, []*runtimeapi.Device, error) {
	may, err := security.Container(security.Config{
		SeccompRoot: filepath.Join(b.cfg.RootDir, "seccomp"), SeccompDefault: b.cfg.SeccompDefault, ThrottlePaths: b.machine.throttlePaths,
		Groups: b.deps.Volumes.Groups(r.Pod.UID),
	}, r.Pod, c, r.TargetID, func() (security.ImageUser, error) { return b.imageUser(ctx, r.ImageRef) })
	if err != nil {
		return nil, nil, nil, err
	}
	mounts, err := b.mounts(ctx, r, c, vars)
	if err != nil {
		return nil, nil, nil, err
	}
	devices, err := b.devices(r, c)
	if err != nil {
		return nil, nil, nil, err
	}
	users, err := b.usersOf(ctx, r)
	if err != nil {
		return nil, nil, nil, err
	}
	may.NamespaceOptions.UsernsOptions = users
	idmap(mounts, users)
	return may, mounts, devices, nil
}

// commandLine is what a container runs, with its variables in place of their names.
func commandLine(c *v1.Container, vars map[string]string) (command, args []string, err error) {
	if command, err = env.ExpandAll(c.Command, vars); err != nil {
		return nil, nil, fmt.Errorf("the command of container %q: %w", c.Name, err)
	}
	if args, err = env.ExpandAll(c.Args, vars); err != nil {
		return nil, nil, fmt.Errorf("the args of container %q: %w", c.Name, err)
	}
	return command, args, nil
}

func keyValues(vars map[string]string) []*runtimeapi.KeyValue {
	list := make([]*runtimeapi.KeyValue, 0, len(vars))
	for _, name := range env.Sorted(vars) {
		list = append(list, &runtimeapi.KeyValue{Key: name, Value: []byte(vars[name])})
	}
	return list
}

func stopSignal(config *runtimeapi.ContainerConfig, c *v1.Container) error {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return nil
	}
	name := string(*c.Lifecycle.StopSignal)
	// CRI spells SIGRTMIN+1 as SIGRTMINPLUS1.
	number, ok := runtimeapi.Signal_value[strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)]
	if !ok {
		return fmt.Errorf("unknown stopSignal %q", name)
	}
	config.StopSignal = runtimeapi.Signal(number)
	return nil
}

// terminationLog makes the file that the container may leave a message in, and
// its mount; nil when the container has no path for it.
func (b *Builder) terminationLog(pod *v1.Pod, c *v1.Container) (*runtimeapi.Mount, error) {
	if c.TerminationMessagePath == "" {
		return nil, nil
	}
	if c.Name == "" || c.Name != filepath.Base(c.Name) {
		return nil, fmt.Errorf("container name %q cannot be a directory's name", c.Name)
	}
	dir := filepath.Join(b.podDir(pod), "containers", c.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the container's directory: %w", err)
	}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	file := filepath.Join(dir, hex.EncodeToString(random))
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return nil, fmt.Errorf("make the termination log in %s: %w", dir, nameless(err))
	}
	if err := os.Chmod(file, 0o666); err != nil {
		return nil, fmt.Errorf("open the termination log in %s to all users: %w", dir, nameless(err))
	}
	b.written(file)
	return &runtimeapi.Mount{ContainerPath: filepath.Join("/", c.TerminationMessagePath), HostPath: file, SelinuxRelabel: true}, nil
}

// nameless is err without the file's name, which is another one at each try: what
// says the same again is one event that counts, and no new status of the pod.
func nameless(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// errNoVolume says that a mount's volume is not there.
var errNoVolume = errors.New("cannot find volume to mount into container")
