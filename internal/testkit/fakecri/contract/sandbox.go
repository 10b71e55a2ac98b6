package contract

import (
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var sandboxCases = []Case{
	{"a sandbox runs, stops and goes", func(k *kit) {
		id, cfg := k.sandbox()
		st := k.podStatus(id)
		k.equal("state", st.GetState(), runtimeapi.PodSandboxState_SANDBOX_READY)
		k.equal("uid", st.GetMetadata().GetUid(), cfg.GetMetadata().GetUid())
		k.equal("label", st.GetLabels()["case"], k.pod)
		k.equal("annotation", st.GetAnnotations()["note"], "a b")
		k.equal("has an address", st.GetNetwork().GetIp() != "", true)
		k.equal("has a time of creation", st.GetCreatedAt() > 0, true)
		for range 2 {
			_, err := k.rt.StopPodSandbox(k.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
			k.works("stop", err)
		}
		st = k.podStatus(id)
		k.equal("state after the stop", st.GetState(), runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
		k.equal("address after the stop", st.GetNetwork().GetIp(), "")
		for range 2 {
			_, err := k.rt.RemovePodSandbox(k.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
			k.works("remove", err)
		}
		_, err := k.rt.PodSandboxStatus(k.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		k.fails("status of a removed one", err, codes.NotFound, "not found")
		_, err = k.rt.StopPodSandbox(k.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		k.idempotent("stop of a removed one", err)
		_, err = k.tryRun(cfg)
		k.works("the name is free again", err)
	}},
	{"two sandboxes cannot have one name", func(k *kit) {
		_, cfg := k.sandbox()
		_, err := k.tryRun(cfg)
		k.reserved("the same name", err)
		_, err = k.tryRun(k.sandboxConfig(1))
		k.works("the next attempt", err)
	}},
	{"a runtime handler that is not configured is refused", func(k *kit) {
		_, err := k.rt.RunPodSandbox(k.ctx, &runtimeapi.RunPodSandboxRequest{Config: k.sandboxConfig(0), RuntimeHandler: "nope"})
		k.fails("run", err, codes.Unknown, "no runtime for \"nope\" is configured")
	}},
	{"the status of a sandbox stands alone", func(k *kit) {
		id, cfg := k.sandbox()
		k.create(id, cfg, "app", "sleep")
		resp, err := k.rt.PodSandboxStatus(k.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		k.works("status", err)
		k.equal("statuses of containers in it", len(resp.GetContainersStatuses()), 0)
		k.equal("timestamp", resp.GetTimestamp(), int64(0))
	}},
	{"sandboxes are listed by id, state and label", func(k *kit) {
		a, _ := k.sandbox()
		b, err := k.tryRun(k.sandboxConfig(1))
		k.works("second sandbox", err)
		_, err = k.rt.StopPodSandbox(k.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: b})
		k.works("stop", err)
		mine := map[string]string{"case": k.pod}
		state := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
			return &runtimeapi.PodSandboxStateValue{State: s}
		}
		for what, tc := range map[string]struct {
			filter *runtimeapi.PodSandboxFilter
			want   int
		}{
			"label":       {&runtimeapi.PodSandboxFilter{LabelSelector: mine}, 2},
			"other label": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"case": "none"}}, 0},
			"id":          {&runtimeapi.PodSandboxFilter{Id: a}, 1},
			"short id":    {&runtimeapi.PodSandboxFilter{Id: a[:20]}, 1},
			"unknown id":  {&runtimeapi.PodSandboxFilter{Id: unknownID}, 0},
			"ready":       {&runtimeapi.PodSandboxFilter{LabelSelector: mine, State: state(runtimeapi.PodSandboxState_SANDBOX_READY)}, 1},
			"not ready":   {&runtimeapi.PodSandboxFilter{LabelSelector: mine, State: state(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)}, 1},
		} {
			resp, err := k.rt.ListPodSandbox(k.ctx, &runtimeapi.ListPodSandboxRequest{Filter: tc.filter})
			k.works(what, err)
			k.equal(what, len(resp.GetItems()), tc.want)
		}
	}},
	{"a sandbox on the host's network has no address of its own", func(k *kit) {
		cfg := k.sandboxConfig(0)
		cfg.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}
		id, err := k.tryRun(cfg)
		if err != nil {
			k.t.Fatal(err)
		}
		st := k.podStatus(id)
		k.equal("address", st.GetNetwork().GetIp(), "")
		k.equal("network mode", st.GetLinux().GetNamespaces().GetOptions().GetNetwork(), runtimeapi.NamespaceMode_NODE)
	}},
	{"stopping a sandbox kills its containers", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		created := k.create(id, cfg, "created", "sleep")
		_, err := k.rt.StopPodSandbox(k.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		k.works("stop", err)
		st := k.ended(c)
		k.equal("exit code", st.GetExitCode(), int32(137))
		k.equal("reason", st.GetReason(), "Error")
		_, err = k.tryCreate(id, cfg, k.containerConfig("late", "sleep"))
		k.equal("create in a stopped sandbox fails", err != nil, true)
		k.fails("start in a stopped sandbox", k.tryStart(created), codes.Unknown, "is not running")
	}},
	{"removing a sandbox takes its running containers along", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		_, err := k.rt.RemovePodSandbox(k.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		k.works("remove", err)
		_, err = k.rt.ContainerStatus(k.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c})
		k.fails("status of its container", err, codes.NotFound, "not found")
	}},
}
