package containerd_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/registry"
)

func TestAPodRunsOnContainerdTwoAndLeavesNothing(t *testing.T) { runPod(t, containerd.Built, true) }

func TestAPodRunsOnDebiansContainerdAndLeavesNothing(t *testing.T) {
	runPod(t, containerd.Debian, true)
}

func TestACrashedRuntimeLeavesNothingAfterRemove(t *testing.T) { runPod(t, containerd.Built, false) }

func runPod(t *testing.T, version containerd.Version, orderly bool) {
	ctx := realtest.Begin(t, "needs root, containerd and minutes", 10*time.Minute)
	inst := realtest.Instance(t)
	images0, err := registry.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { images0.Close() })
	if err := images.PushAll(ctx, images0, inst.Path("images")); err != nil {
		t.Fatal(err)
	}
	c, err := containerd.Start(ctx, containerd.Config{
		Instance: inst, Registry: images0, Version: version, PauseImage: images.Pause, Progress: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); c.Kill() })
	pod := startPod(ctx, t, c, inst)
	checkPod(ctx, t, c, pod)
	if orderly {
		if err := c.RemovePods(ctx); err != nil {
			t.Error(err)
		}
		c.Stop()
	} else {
		c.Kill()
	}
	if err := inst.Remove(); err != nil {
		t.Fatal(err)
	}
	checkNothingIsLeft(t, inst)
	if t.Failed() {
		t.Log(process.Tail(c.LogFile(), 40))
	}
}

// startedPod is what the checks need to know.
type startedPod struct{ sandbox, container, ip string }

func startPod(ctx context.Context, t *testing.T, c *containerd.Containerd, inst *instance.Instance) startedPod {
	t.Helper()
	image := &runtimeapi.ImageSpec{Image: images.TestApp}
	if _, err := c.Images().PullImage(ctx, &runtimeapi.PullImageRequest{Image: image}); err != nil {
		t.Fatalf("pull %s: %v", images.TestApp, err)
	}
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "u1"},
		LogDirectory: inst.Path("logs"),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: inst.CgroupRoot() + "/pod1"},
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 8080, HostPort: 0}},
	}
	ran, err := c.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatalf("run a sandbox: %v", err)
	}
	created, err := c.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: ran.PodSandboxId, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: image,
			Args: []string{"http", "port=8080"}, LogPath: "app.log",
		},
	})
	if err != nil {
		t.Fatalf("create a container: %v", err)
	}
	if _, err := c.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		t.Fatalf("start a container: %v", err)
	}
	status, err := c.Runtime().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ran.PodSandboxId})
	if err != nil {
		t.Fatalf("inspect the sandbox: %v", err)
	}
	return startedPod{ran.PodSandboxId, created.ContainerId, status.Status.Network.Ip}
}

func checkPod(ctx context.Context, t *testing.T, c *containerd.Containerd, pod startedPod) {
	t.Helper()
	out, err := c.Runtime().ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: pod.container, Cmd: []string{"/testapp", "stat", "path=/testapp"}})
	if err != nil || !strings.Contains(string(out.Stdout), "mode=0755") {
		t.Errorf("exec: %v, output %q", err, out.GetStdout())
	}
	deadline := time.Now().Add(time.Minute)
	for {
		res, err := http.Get("http://" + pod.ip + ":8080/env")
		if err == nil {
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if !strings.Contains(string(body), "IMAGE_ENV=from-the-image") {
				t.Errorf("environment is %q", body)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod does not answer on its address: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func checkNothingIsLeft(t *testing.T, inst *instance.Instance) {
	t.Helper()
	if pids, err := inst.Processes(); err != nil || len(pids) > 0 {
		t.Errorf("processes left: %v %v", pids, err)
	}
	if mounts, err := inst.Mounts(); err != nil || len(mounts) > 0 {
		t.Errorf("mounts left: %v %v", mounts, err)
	}
	if cgroups, err := inst.Cgroups(); err != nil || len(cgroups) > 0 {
		t.Errorf("cgroups left: %v %v", cgroups, err)
	}
	if inst.HasBridge() {
		t.Errorf("bridge %s left", inst.Bridge())
	}
	if _, err := os.Stat(inst.Dir); err == nil {
		t.Errorf("directory %s left", inst.Dir)
	}
}
