package oomkill

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// events notes what is sent.
type events []string

func (s *events) SendOnce(_ context.Context, e node.Event, _ time.Time, key string) {
	*s = append(*s, fmt.Sprintf("%s node %s %s: %s", key, e.Type, e.Reason, e.Message))
}

func (s *events) SendPodOnce(_ context.Context, pod v1.ObjectReference, e node.Event, _ time.Time, key string) {
	*s = append(*s, fmt.Sprintf("%s %s/%s %s %s %s: %s", key, pod.Namespace, pod.Name, pod.FieldPath, e.Type, e.Reason, e.Message))
}

// telling tells what do says, on virtual time, and returns what was sent.
func telling(t *testing.T, do func(ctx context.Context, teller *Teller)) []string {
	t.Helper()
	var sent events
	synctest.Test(t, func(t *testing.T) { do(t.Context(), New(&sent, "B00t")) })
	return sent
}

func kill(sequence uint64, system bool, container string) Kill {
	k := Kill{Sequence: sequence, Time: time.Now(), Process: "eater", PID: 42, System: system}
	if container != "" {
		k.Pod, k.PodUID, k.Container = types.NamespacedName{Namespace: "shop", Name: "web-0"}, "u", container
	}
	return k
}

func TestAMachineWithoutMemoryIsToldOfInTheKubeletsWords(t *testing.T) {
	got := telling(t, func(ctx context.Context, teller *Teller) {
		teller.Tell(ctx, []Kill{kill(7, true, ""), kill(8, false, "")})
	})
	if want := []string{"oom-b00t-7 node Warning SystemOOM: System OOM encountered, victim process: eater, pid: 42"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestAContainersProcessIsToldOfOnItsPodNotMoreThanOnceAMinute(t *testing.T) {
	got := telling(t, func(ctx context.Context, teller *Teller) {
		teller.Tell(ctx, []Kill{kill(1, false, "web"), kill(2, false, "web"), kill(3, false, "side")})
		time.Sleep(podPause)
		teller.Tell(ctx, []Kill{kill(4, true, "web")})
	})
	want := []string{
		"oom-b00t-1 shop/web-0 spec.containers{web} Warning OOMKilling: Process eater (pid 42) of container web was killed, for its memory limit was used up",
		"oom-b00t-3 shop/web-0 spec.containers{side} Warning OOMKilling: Process eater (pid 42) of container side was killed, for its memory limit was used up",
		"oom-b00t-4 node Warning SystemOOM: System OOM encountered, victim process: eater, pid: 42",
		"oom-b00t-4 shop/web-0 spec.containers{web} Warning OOMKilling: Process eater (pid 42) of container web was killed, for the node's memory was used up",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// enforceNodeAllocatable limits all pods together by default: who is killed for that may be
// far from his own limit, or have none.
func TestWhoseLimitWasUsedUpIsSaid(t *testing.T) {
	const uid = "6a5c2a4e-1b5a-4b5e-9a53-0d4ab8e5a111"
	const container = "/kubepods/burstable/pod" + uid + "/c0ffee"
	const scope = "/kubepods.slice/kubepods-pod6a5c2a4e_1b5a_4b5e_9a53_0d4ab8e5a111.slice"
	for name, c := range map[string]struct{ cgroup, limit, want string }{
		"its own":                        {container, container, "its memory limit"},
		"one that it has made within":    {container + "/app", container + "/app", "its memory limit"},
		"its own, of a process within":   {container + "/app", container, "its memory limit"},
		"its pod's":                      {container, "/kubepods/burstable/pod" + uid, "the memory limit of its pod"},
		"its pod's, as systemd calls it": {scope + "/cri-containerd-c0ffee.scope", scope, "the memory limit of its pod"},
		"that of all pods":               {container, "/kubepods", "the memory limit of cgroup /kubepods, in which other pods are, too,"},
		"that of all pods, with systemd": {scope + "/cri-containerd-c0ffee.scope", "/kubepods.slice", "the memory limit of cgroup /kubepods.slice, in which other pods are, too,"},
		"that of a class":                {container, "/kubepods/burstable", "the memory limit of cgroup /kubepods/burstable, in which other pods are, too,"},
		"its own, where pods have none":  {"/c0ffee", "/c0ffee", "its memory limit"},
		"not known":                      {container, "", "its memory limit"},
		"a pod whose name is longer":     {container, "/kubepods/burstable/pod" + uid + "0", "the memory limit of cgroup /kubepods/burstable/pod" + uid + "0, in which other pods are, too,"},
	} {
		got := telling(t, func(ctx context.Context, teller *Teller) {
			k := kill(1, false, "web")
			k.PodUID, k.Cgroup, k.Limit = uid, c.cgroup, c.limit
			teller.Tell(ctx, []Kill{k})
		})
		want := "oom-b00t-1 shop/web-0 spec.containers{web} Warning OOMKilling: Process eater (pid 42) of container web was killed, for " + c.want + " was used up"
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q\nwant %q", name, got, want)
		}
	}
}

func TestAKillIsNewsOnce(t *testing.T) {
	got := telling(t, func(ctx context.Context, teller *Teller) {
		first := kill(7, true, "")
		teller.Tell(ctx, []Kill{first})
		teller.Tell(ctx, []Kill{first}) // stats was started anew.
		before := kill(8, true, "")
		time.Sleep(old)
		teller.Tell(ctx, []Kill{before})
	})
	if len(got) != 1 {
		t.Errorf("%q", got)
	}
}
