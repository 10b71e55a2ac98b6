package contract

import (
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var containerCases = []Case{
	{"a container is created, runs, stops and goes", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.create(id, cfg, "app", "sleep")
		st := k.status(c)
		k.equal("state", st.GetState(), runtimeapi.ContainerState_CONTAINER_CREATED)
		k.equal("created", st.GetCreatedAt() > 0, true)
		k.equal("started", st.GetStartedAt(), int64(0))
		k.equal("finished", st.GetFinishedAt(), int64(0))
		k.equal("image", st.GetImage().GetImage(), k.target.Image)
		k.equal("image reference names a digest", strings.Contains(st.GetImageRef(), "@sha256:"), true)
		k.equal("log path", st.GetLogPath(), filepath.Join(cfg.GetLogDirectory(), "app.log"))
		k.equal("label", st.GetLabels()["name"], "app")
		k.equal("annotation", st.GetAnnotations()["of"], "app")
		k.works("start", k.tryStart(c))
		st = k.status(c)
		k.equal("state", st.GetState(), runtimeapi.ContainerState_CONTAINER_RUNNING)
		k.equal("started", st.GetStartedAt() >= st.GetCreatedAt(), true)
		k.equal("reason while running", st.GetReason(), "")
		k.fails("second start", k.tryStart(c), codes.Unknown, "CONTAINER_RUNNING state")
		_, err := k.exec(c, 10, "true")
		k.works("exec", err)
		k.stop(c, 10)
		st = k.status(c)
		k.equal("state after the stop", st.GetState(), runtimeapi.ContainerState_CONTAINER_EXITED)
		k.equal("exit code", st.GetExitCode(), int32(0))
		k.equal("reason", st.GetReason(), "Completed")
		k.equal("finished", st.GetFinishedAt() >= st.GetStartedAt(), true)
		k.stop(c, 10)
		k.fails("start after the end", k.tryStart(c), codes.Unknown, "CONTAINER_EXITED state")
		for range 2 {
			_, err := k.rt.RemoveContainer(k.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c})
			k.works("remove", err)
		}
	}},
	{"unknown containers can be removed, not started or seen", func(k *kit) {
		_, err := k.rt.StopContainer(k.ctx, &runtimeapi.StopContainerRequest{ContainerId: unknownID, Timeout: 1})
		k.idempotent("stop", err)
		_, err = k.rt.RemoveContainer(k.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: unknownID})
		k.works("remove", err)
		k.fails("start", k.tryStart(unknownID), codes.NotFound, "not found")
		_, err = k.rt.ContainerStatus(k.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: unknownID})
		k.fails("status", err, codes.NotFound, "not found")
		_, err = k.exec(unknownID, 1, "true")
		k.fails("exec", err, codes.NotFound, "not found")
		_, err = k.rt.ContainerStats(k.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: unknownID})
		k.fails("stats", err, codes.NotFound, "not found")
		_, err = k.tryCreate(unknownID, k.sandboxConfig(0), k.containerConfig("app", "sleep"))
		k.fails("create in an unknown sandbox", err, codes.NotFound, "not found")
	}},
	{"two containers of a pod cannot have one name and attempt", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.create(id, cfg, "app", "sleep")
		_, err := k.tryCreate(id, cfg, k.containerConfig("app", "sleep"))
		k.reserved("the same name", err)
		next := k.containerConfig("app", "sleep")
		next.Metadata.Attempt = 1
		_, err = k.tryCreate(id, cfg, next)
		k.works("the next attempt", err)
		// The name belongs to the pod, not to the sandbox.
		other := k.sandboxConfig(1)
		second, err := k.tryRun(other)
		k.works("second sandbox", err)
		_, err = k.tryCreate(second, other, k.containerConfig("app", "sleep"))
		k.reserved("the same name in another attempt of the sandbox", err)
		_, err = k.rt.RemoveContainer(k.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c})
		k.works("remove", err)
		_, err = k.tryCreate(id, cfg, k.containerConfig("app", "sleep"))
		k.equal("creating under the freed name works", err == nil, true)
	}},
	{"a container needs an image that is present", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.containerConfig("app", "sleep")
		c.Image.Image = k.target.Missing
		_, err := k.tryCreate(id, cfg, c)
		k.fails("create", err, codes.NotFound, "not found")
	}},
	{"a running container can be removed at once", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "stubborn")
		_, err := k.rt.RemoveContainer(k.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c})
		k.works("remove", err)
		_, err = k.rt.ContainerStatus(k.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c})
		k.fails("status", err, codes.NotFound, "not found")
	}},
	{"stopping a container that was never started changes nothing", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.create(id, cfg, "app", "sleep")
		k.stop(c, 1)
		k.equal("state", k.status(c).GetState(), runtimeapi.ContainerState_CONTAINER_CREATED)
		k.works("start afterwards", k.tryStart(c))
	}},
	{"containers are listed by id, sandbox, state and label", func(k *kit) {
		id, cfg := k.sandbox()
		a := k.running(id, cfg, "a", "sleep")
		k.create(id, cfg, "b", "sleep")
		state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
			return &runtimeapi.ContainerStateValue{State: s}
		}
		for what, tc := range map[string]struct {
			filter *runtimeapi.ContainerFilter
			want   int
		}{
			"sandbox":         {&runtimeapi.ContainerFilter{PodSandboxId: id}, 2},
			"short sandbox":   {&runtimeapi.ContainerFilter{PodSandboxId: id[:20]}, 2},
			"unknown sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: unknownID}, 0},
			"id":              {&runtimeapi.ContainerFilter{Id: a}, 1},
			"running":         {&runtimeapi.ContainerFilter{PodSandboxId: id, State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)}, 1},
			"exited":          {&runtimeapi.ContainerFilter{PodSandboxId: id, State: state(runtimeapi.ContainerState_CONTAINER_EXITED)}, 0},
			"label":           {&runtimeapi.ContainerFilter{PodSandboxId: id, LabelSelector: map[string]string{"name": "b"}}, 1},
		} {
			resp, err := k.rt.ListContainers(k.ctx, &runtimeapi.ListContainersRequest{Filter: tc.filter})
			k.works(what, err)
			k.equal(what, len(resp.GetContainers()), tc.want)
		}
	}},
	{"resources of a running container change in its status", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		_, err := k.rt.UpdateContainerResources(k.ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20},
		})
		k.works("update", err)
		got := k.status(c).GetResources().GetLinux()
		k.equal("shares", got.GetCpuShares(), int64(512))
		k.equal("memory", got.GetMemoryLimitInBytes(), int64(64<<20))
		_, err = k.rt.UpdateContainerResources(k.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: unknownID})
		k.fails("update of an unknown one", err, codes.NotFound, "not found")
	}},
}
