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
