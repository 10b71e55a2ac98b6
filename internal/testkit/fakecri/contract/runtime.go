package contract

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var runtimeCases = []Case{
	{"events from before the first subscriber are kept for it", func(k *kit) {
		if k.target.Containerd16 {
			return
		}
		id, _ := k.sandbox()
		ctx, cancel := context.WithCancel(k.ctx)
		events, wait := k.listen(ctx)
		defer wait()
		defer cancel()
		k.eventually("the events of the sandbox", func() bool {
			return letters(steps(events(), id, "")) == "CREATED STARTED"
		})
	}},
	{"the runtime names itself and its conditions", func(k *kit) {
		v, err := k.rt.Version(k.ctx, &runtimeapi.VersionRequest{})
		k.works("version", err)
		k.equal("name", v.GetRuntimeName(), "containerd")
		k.equal("API version", v.GetRuntimeApiVersion(), "v1")
		st, err := k.rt.Status(k.ctx, &runtimeapi.StatusRequest{})
		k.works("status", err)
		ready := 0
		for _, c := range st.GetStatus().GetConditions() {
			if (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) && c.GetStatus() {
				ready++
			}
		}
		k.equal("ready conditions", ready, 2)
		_, err = k.rt.UpdateRuntimeConfig(k.ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{}})
		k.works("update config", err)
		_, err = k.rt.RuntimeConfig(k.ctx, &runtimeapi.RuntimeConfigRequest{})
		if k.target.Containerd16 {
			k.fails("config", err, codes.Unimplemented, "")
		} else {
			k.works("config", err)
		}
	}},
	{"statistics weigh the writable layer of what runs", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		k.create(id, cfg, "created", "sleep")
		k.stop(k.running(id, cfg, "ended", "sleep"), 5)
		resp, err := k.rt.ContainerStats(k.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: c})
		k.works("stats", err)
		k.equal("id", resp.GetStats().GetAttributes().GetId(), c)
		k.equal("writable layer", resp.GetStats().GetWritableLayer().GetUsedBytes() != nil, true)
		list, err := k.rt.ListContainerStats(k.ctx, &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: id}})
		k.works("list", err)
		found := false
		for _, s := range list.GetStats() {
			found = found || s.GetAttributes().GetId() == c
		}
		k.equal("listed", found, true)
		k.equal("number listed", len(list.GetStats()), 3)
	}},
	{"events tell every step of sandbox and containers", func(k *kit) {
		ctx, cancel := context.WithCancel(k.ctx)
		events, wait := k.listen(ctx)
		if k.target.Containerd16 {
			wait()
			cancel()
			return
		}
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		k.stop(c, 5)
		_, err := k.rt.RemoveContainer(k.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c})
		k.works("remove container", err)
		_, err = k.rt.StopPodSandbox(k.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		k.works("stop sandbox", err)
		_, err = k.rt.RemovePodSandbox(k.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		k.works("remove sandbox", err)
		want := []step{
			{"sandbox", runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, true, 0},
			{"sandbox", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, true, 0},
			{"container", runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, true, 1},
			{"container", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, true, 1},
			{"container", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, true, 1},
			{"container", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, true, 0},
			{"sandbox", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, true, 0},
			{"sandbox", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, true, 0},
		}
		var got []step
		k.eventually("all events", func() bool {
			got = steps(events(), id, c)
			return len(got) >= len(want)
		})
		cancel()
		wait()
		for i := range min(len(want), len(got)) {
			k.equal("event", got[i], want[i])
		}
		k.equal("number of events", len(got), len(want))
	}},
	{"events tell of exits, failed starts and forced removals", func(k *kit) {
		if k.target.Containerd16 {
			return
		}
		ctx, cancel := context.WithCancel(k.ctx)
		events, wait := k.listen(ctx)
		defer wait()
		defer cancel()
		id, cfg := k.sandbox()
		job := k.create(id, cfg, "job", "exit", "code=3")
		k.works("start", k.tryStart(job))
		k.ended(job)
		cc := k.containerConfig("broken")
		cc.Command = []string{"/does-not-exist"}
		broken, err := k.tryCreate(id, cfg, cc)
		k.works("create", err)
		k.equal("a start of nothing fails", k.tryStart(broken) != nil, true)
		app := k.running(id, cfg, "app", "sleep")
		_, err = k.rt.RemovePodSandbox(k.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		k.works("remove sandbox", err)
		k.eventually("the last event", func() bool {
			s := steps(events(), id, job)
			return strings.HasSuffix(letters(s), "DELETED") && s[len(s)-1].of == "sandbox"
		})
		kinds := func(container string) string { return letters(steps(events(), "", container)) }
		k.equal("events of the job", kinds(job), "CREATED STARTED STOPPED DELETED")
		k.equal("events of the broken one", kinds(broken), "CREATED DELETED")
		k.equal("events of the app", kinds(app), "CREATED STARTED STOPPED DELETED")
		k.equal("events of the sandbox", letters(steps(events(), id, "")), "CREATED STARTED STOPPED DELETED")
		for _, e := range events() {
			if e.GetContainerId() == job && e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				k.equal("exit code in the event", e.GetContainersStatuses()[0].GetExitCode(), int32(3))
			}
		}
	}},
}

// letters are the kinds of the steps in words.
func letters(steps []step) string {
	var words []string
	for _, s := range steps {
		words = append(words, strings.TrimSuffix(strings.TrimPrefix(s.kind.String(), "CONTAINER_"), "_EVENT"))
	}
	return strings.Join(words, " ")
}

// step is an event without its names.
type step struct {
	of         string
	kind       runtimeapi.ContainerEventType
	withStatus bool
	containers int
}

func steps(events []*runtimeapi.ContainerEventResponse, sandbox, container string) []step {
	var out []step
	for _, e := range events {
		of := ""
		switch e.GetContainerId() {
		case sandbox:
			of = "sandbox"
		case container:
			of = "container"
		default:
			continue
		}
		out = append(out, step{of, e.GetContainerEventType(), e.GetPodSandboxStatus() != nil, len(e.GetContainersStatuses())})
	}
	return out
}

// listen collects events until ctx ends; wait returns when it has.
func (k *kit) listen(ctx context.Context) (events func() []*runtimeapi.ContainerEventResponse, wait func()) {
	stream, err := k.rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		k.t.Fatalf("open the event stream: %v", err)
	}
	var mu sync.Mutex
	var all []*runtimeapi.ContainerEventResponse
	var done sync.WaitGroup
	done.Go(func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				if k.target.Containerd16 {
					k.fails("events", err, codes.Unimplemented, "")
				}
				return
			}
			mu.Lock()
			all = append(all, e)
			mu.Unlock()
		}
	})
	return func() []*runtimeapi.ContainerEventResponse {
		mu.Lock()
		defer mu.Unlock()
		return all[:len(all):len(all)]
	}, done.Wait
}
