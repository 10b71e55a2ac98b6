package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
)

// A container whose child was killed goes on, and its status says nothing of that.
func TestAnExplanationNamesTheProcessesThatTheKernelHasKilled(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 11, 26, 21, 0, 5, 0, time.Local))
	kills := killsOf("u", []*statsv1.OOMKill{
		{Time: at, Process: "eat\ner", Pid: 42, PodUid: "u", Container: "app", Cgroup: "/kubepods/podu/c", LimitCgroup: "/kubepods/podu"},
		{Time: at, Process: "another", Pid: 43, PodUid: "other", Container: "app"},
		{Time: at, Process: "nobodys", Pid: 44, System: true},
	})
	var out bytes.Buffer
	showOOMKills(&out, kills)
	if want := "\nThe kernel has killed for lack of memory:\n  2026-11-26 21:00:05  process eat er (pid 42) of container app, for the memory limit of its pod was used up\n"; out.String() != want {
		t.Errorf("%q\nwant %q", out.String(), want)
	}
	if out.Reset(); len(killsOf("", []*statsv1.OOMKill{{Process: "nobodys"}})) > 0 {
		t.Error("what is nobody's is said of a pod without a UID")
	}
	if showOOMKills(&out, nil); out.Len() > 0 {
		t.Errorf("%q without an answer", out.String())
	}
	resp := &podsyncv1.ExplainPodResponse{Phase: "Running"}
	for want, of := range map[string][]*statsv1.OOMKill{
		`"oomKills":[{"time":"`: kills, `"oomKills":[]`: {}, `{"phase":"Running"}`: nil,
	} {
		raw, err := podDocument(resp, of)()
		var compact bytes.Buffer // protojson puts in spaces at random.
		if err != nil || json.Compact(&compact, raw) != nil || !strings.Contains(compact.String(), want) {
			t.Errorf("%v: %s, want %s", err, compact.String(), want)
		}
	}
}
