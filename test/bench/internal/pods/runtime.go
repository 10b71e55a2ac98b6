package pods

import (
	"context"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/harness/images"
)

// measureRuntime does over the CRI what an agent would do for the same pods, and
// nothing else.
func measureRuntime(ctx context.Context, s Settings, st *stage.Stage, c *report.Column) error {
	image := &runtimeapi.ImageSpec{Image: images.TestApp}
	if _, err := st.Runtime.Images().PullImage(ctx, &runtimeapi.PullImageRequest{Image: image}); err != nil {
		return fmt.Errorf("pull %s: %w", images.TestApp, err)
	}
	before, err := cpuOfRuntime(st)
	if err != nil {
		return err
	}
	for n := range s.Samples {
		if err := runtimeLife(ctx, st, []string{fmt.Sprintf("single-%d", n)}, 1, c, "one pod"); err != nil {
			return err
		}
	}
	if err := runtimeLife(ctx, st, stage.BurstNames(s.Burst), s.Parallel, c, fmt.Sprintf("%d pods", s.Burst)); err != nil {
		return err
	}
	return addRuntimeCost(st, c, before, s.Samples+s.Burst)
}

func runtimeLife(ctx context.Context, st *stage.Stage, names []string, parallel int, c *report.Column, what string) error {
	var mu sync.Mutex
	ids := map[string]string{}
	began := time.Now()
	up, err := bounded(names, parallel, func(name string) error {
		id, err := startPod(ctx, st, name)
		mu.Lock()
		ids[name] = id
		mu.Unlock()
		return err
	})
	if err != nil {
		return err
	}
	addPods(c, what+": create → Ready", sameStart(names, began), began, up, func(m stage.Moments) time.Time { return m.Ready })
	began = time.Now()
	gone, err := bounded(names, parallel, func(name string) error { return endPod(ctx, st, ids[name]) })
	if err != nil {
		return err
	}
	addPods(c, what+": delete → gone", sameStart(names, began), began, gone, func(m stage.Moments) time.Time { return m.Ready })
	return nil
}

// bounded does the same for every name, so many at a time, and returns when each
// was done.
func bounded(names []string, parallel int, do func(string) error) (map[string]stage.Moments, error) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		first error
		done  = map[string]stage.Moments{}
		gate  = make(chan struct{}, parallel)
	)
	for _, name := range names {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			err := do(name)
			mu.Lock()
			defer mu.Unlock()
			done[name] = stage.Moments{Ready: time.Now()}
			if err != nil && first == nil {
				first = fmt.Errorf("pod %s: %w", name, err)
			}
		})
	}
	wg.Wait()
	return done, first
}

func sameStart(names []string, began time.Time) map[string]time.Time {
	starts := map[string]time.Time{}
	for _, name := range names {
		starts[name] = began
	}
	return starts
}

func startPod(ctx context.Context, st *stage.Stage, name string) (string, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Hostname: name, LogDirectory: st.Instance.Path("bench-logs", name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: st.Instance.CgroupRoot() + "/bench/" + name},
	}
	sandbox, err := st.Runtime.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", fmt.Errorf("run the sandbox: %w", err)
	}
	container, err := st.Runtime.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: images.TestApp},
			Args: []string{"sleep"}, LogPath: "app.log",
		},
	})
	if err != nil {
		return sandbox.PodSandboxId, fmt.Errorf("create the container: %w", err)
	}
	if _, err := st.Runtime.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		return sandbox.PodSandboxId, fmt.Errorf("start the container: %w", err)
	}
	return sandbox.PodSandboxId, nil
}

func endPod(ctx context.Context, st *stage.Stage, sandbox string) error {
	list, err := st.Runtime.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list.Containers {
		if _, err := st.Runtime.Runtime().StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id, Timeout: 5}); err != nil {
			return fmt.Errorf("stop the container: %w", err)
		}
	}
	if _, err := st.Runtime.Runtime().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("stop the sandbox: %w", err)
	}
	if _, err := st.Runtime.Runtime().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("remove the sandbox: %w", err)
	}
	return nil
}
