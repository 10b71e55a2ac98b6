package criconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/downward"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/env"
)

const (
	// maxEnvFile bounds a file that variables are read from.
	maxEnvFile = 1 << 20
	// staticServicesWait is how long a static pod waits for services: it must
	// come up without an apiserver.
	staticServicesWait = 50 * time.Millisecond

	masterService = "kubernetes"
)

// environment computes the container's variables.
func (b *Builder) environment(ctx context.Context, r Request, c *v1.Container) (map[string]string, error) {
	services, err := b.services(ctx, r.Pod)
	if err != nil {
		return nil, err
	}
	in := env.Input{
		Pod: r.Pod, Container: c, Services: services,
		Node: downward.Node{
			Name: b.cfg.NodeName, HostIPs: b.deps.HostIPs(), PodIPs: r.PodIPs, Allocatable: b.deps.Allocatable(),
		},
		ConfigMap: func(name string) (*v1.ConfigMap, error) {
			return b.deps.Objects.ConfigMap(ctx, r.Pod.Namespace, name)
		},
		Secret: func(name string) (*v1.Secret, error) { return b.deps.Objects.Secret(ctx, r.Pod.Namespace, name) },
	}
	if !b.cfg.NoEnvFiles {
		in.File = func(volume, path string) (string, bool, error) { return b.envFile(r.Pod, volume, path) }
	}
	return env.Build(in)
}

// services are the variables of the services of the pod's namespace (unless it
// does not want them) and of the apiserver's own.
func (b *Builder) services(ctx context.Context, pod *v1.Pod) (map[string]string, error) {
	if b.cfg.Standalone {
		return nil, nil
	}
	static := podutil.Static(pod)
	if static {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, staticServicesWait)
		defer cancel()
	}
	list, err := b.serviceList(ctx, pod)
	if err != nil && static {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return env.FromServices(list), nil
}

func (b *Builder) serviceList(ctx context.Context, pod *v1.Pod) ([]*v1.Service, error) {
	var list []*v1.Service
	has := false
	if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
		own, err := b.deps.Objects.Services(ctx, pod.Namespace)
		if err != nil {
			return nil, err
		}
		for _, s := range own { // one without an address gives no variables
			has = has || s.Name == masterService && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone
		}
		list = append(list, own...)
	}
	if has {
		return list, nil
	}
	master, err := b.deps.Objects.Services(ctx, metav1.NamespaceDefault)
	if err != nil {
		return nil, err
	}
	for _, s := range master {
		if s.Name == masterService {
			list = append(list, s)
		}
	}
	return list, nil
}

// envFile reads a file that a container wrote into one of the pod's volumes:
// never through a symlink that leaves the volume, and nothing but a file is opened.
func (b *Builder) envFile(pod *v1.Pod, volume, path string) (string, bool, error) {
	dir, ok := b.deps.Volumes.HostPath(pod.UID, volume)
	if !ok || dir == "" { // no container mounts it
		return "", false, fmt.Errorf("volume %q is not set up", volume)
	}
	f, err := beneath.OpenInside(dir, path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil {
		return "", false, err
	}
	if len(raw) > maxEnvFile {
		return "", false, fmt.Errorf("it is larger than %d bytes", maxEnvFile)
	}
	return string(raw), true, nil
}
