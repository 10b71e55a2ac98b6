package peer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
)

func TestADecisionIsShownWithTheFiguresItWasMadeOn(t *testing.T) {
	since := time.Unix(7, 0).UTC()
	d := decisionOf(&nodestatusv1.EvictionDecision{
		Time: timestamppb.New(since.Add(time.Minute)), FirstTime: timestamppb.New(since), Count: 3, Outcome: "evicted", Why: "it uses most",
		Shortage:  &nodestatusv1.Shortage{Signal: "memory.available", Threshold: "100Mi", Available: "50Mi", Since: timestamppb.New(since), Hard: true},
		Reclaimed: &nodestatusv1.Reclaimed{Containers: 2, Images: 1, ImageBytes: 5 << 20, Error: "in use"},
		Chosen:    "a/hog", ChosenUid: "u", Grace: durationpb.New(1500 * time.Millisecond), MoreCandidates: 4,
		Candidates: []*nodestatusv1.EvictionCandidate{
			{Pod: "a/hog", Uid: "u", Usage: 150 << 20, Request: 50 << 20, Exceeds: true},
			{Pod: "kube-system/dns", Usage: 12, Priority: 2000000000, Not: "of critical priority"},
		},
	})
	if !d.Time.Equal(since.Add(time.Minute)) || !d.First.Equal(since) || d.Count != 3 || d.Outcome != "evicted" || d.Why != "it uses most" || d.Grace != 1.5 || d.More != 4 || d.Counted {
		t.Errorf("%+v", d)
	}
	if s := d.Shortage; s.Signal != "memory.available" || s.Threshold != "100Mi" || s.Available != "50Mi" || !s.Since.Equal(since) || !s.Hard || s.Limit {
		t.Errorf("%+v", s)
	}
	if r := d.Reclaimed; r.Containers != 2 || r.Images != 1 || r.ImageBytes != 5<<20 || r.Error != "in use" {
		t.Errorf("%+v", r)
	}
	if c := *d.Chosen; c.Namespace != "a" || c.Name != "hog" || c.UID != "u" || c != d.Candidates[0].PodName {
		t.Errorf("%+v", c)
	}
	if c := d.Candidates[0]; c.Usage != 150<<20 || c.Request != 50<<20 || !c.Exceeds {
		t.Errorf("%+v", c)
	}
	if c := d.Candidates[1]; c.Namespace != "kube-system" || c.Priority != 2000000000 || c.Not != "of critical priority" {
		t.Errorf("%+v", c)
	}
}

func TestFiguresOfProcessesAndInodesAreNotShownAsBytes(t *testing.T) {
	for signal, counted := range map[string]bool{
		"pid.available": true, "nodefs.inodesFree": true, "nodefs.available": false, "memory.available": false, "emptydirfs.limit": false,
	} {
		d := decisionOf(&nodestatusv1.EvictionDecision{Shortage: &nodestatusv1.Shortage{Signal: signal}})
		if d.Counted != counted || d.Shortage.Limit != (signal == "emptydirfs.limit") || d.Chosen != nil || d.Reclaimed != nil || d.Shortage.Since != nil {
			t.Errorf("%s: %+v", signal, d)
		}
	}
}

func TestADecisionIsShownWithoutTheNamesOfAContainersFiles(t *testing.T) {
	const secret = "hunter2"
	const why = "it uses the most; container c holds 5Mi open in files that were removed"
	got := decisionOf(&nodestatusv1.EvictionDecision{Why: why, LargestFile: "/tmp/" + secret})
	if text := fmt.Sprintf("%+v", got); strings.Contains(text, secret) || got.Why != why {
		t.Error(text)
	}
}
