package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestVolumesShowHowFullTheyAreAndSinceWhenTheyWait(t *testing.T) {
	used, size := uint64(3<<20), uint64(8<<20)
	raw, err := json.Marshal(statsapi.Summary{Pods: []statsapi.PodStats{{
		PodRef:      statsapi.PodReference{Namespace: "n", Name: "p", UID: "u"},
		VolumeStats: []statsapi.VolumeStats{{Name: "data", FsStats: statsapi.FsStats{UsedBytes: &used, CapacityBytes: &size}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	var out strings.Builder
	err = showVolumes(&out, []*podsyncv1.PodVolumeStates{
		{Pod: &podsyncv1.PodRef{Namespace: "n", Name: "p", Uid: "u"}, Volumes: []*podsyncv1.VolumeState{
			{Name: "data", Plugin: "kubernetes.io/empty-dir", Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_PRESENT},
		}},
		{Pod: &podsyncv1.PodRef{Namespace: "n", Name: "p", Uid: "another"}, Volumes: []*podsyncv1.VolumeState{
			{
				Name: "data", Plugin: "kubernetes.io/csi", PvcName: "c", Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_GOING,
				Waits: []*podsyncv1.Wait{{Reason: "its driver\nhangs", Since: timestamppb.New(now.Add(-time.Minute))}, {Reason: "less grave"}},
			},
		}},
	}, fullness(raw), now)
	if err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "n p data kubernetes.io/empty-dir - - present 3.0 MiB 8.0 MiB -", "n p data kubernetes.io/csi c - going - - its driver hangs (for 60s)")
	if strings.Contains(out.String(), "less grave") {
		t.Errorf("it says more than the gravest:\n%s", &out)
	}
}

func TestAVolumeWithoutAPodIsShownWithWhereItIsStagedAndSinceWhenItFails(t *testing.T) {
	now := time.Unix(1000, 0)
	var out strings.Builder
	err := showVolumes(&out, []*podsyncv1.PodVolumeStates{{Volumes: []*podsyncv1.VolumeState{{
		Name: "handle", Plugin: "kubernetes.io/csi", Driver: "csi.x", HostPath: "/staged", Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_GOING,
		Waits: []*podsyncv1.Wait{{Reason: "its driver is away", Since: timestamppb.New(now.Add(-time.Minute))}},
	}}}}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "- - handle csi.x - - going - - at /staged: its driver is away (for 60s)")
}
