package peer

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/services/nodestatus/internal/oomkill"
)

func TestAKillIsHandedOnWithAllThatStatsSaysOfIt(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	got := killsOf(&statsv1.WatchOOMKillsResponse{Kills: []*statsv1.OOMKill{{
		Sequence: 7, Time: timestamppb.New(at), Process: "eater", Pid: 42, System: true, Cgroup: "/kubepods/podu/c", LimitCgroup: "/kubepods",
		PodNamespace: "shop", PodName: "web-0", PodUid: "u", Container: "web",
	}}})
	want := oomkill.Kill{
		Sequence: 7, Time: at, Process: "eater", PID: 42, System: true, Cgroup: "/kubepods/podu/c", Limit: "/kubepods",
		Pod: types.NamespacedName{Namespace: "shop", Name: "web-0"}, PodUID: "u", Container: "web",
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}
