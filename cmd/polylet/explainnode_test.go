package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestWhatTheNodeIsShortOfIsExplainedWithWhoWasConsidered(t *testing.T) {
	now := time.Now()
	since := timestamppb.New(now.Add(-90 * time.Second))
	short := &nodestatusv1.Shortage{Signal: "memory.available", Threshold: "100Mi", Available: "50Mi", Since: since, Hard: true}
	disk := &nodestatusv1.Shortage{Signal: "nodefs.inodesFree", Threshold: "1k", Available: "7", Since: since}
	resp := &nodestatusv1.ListEvictionDecisionsResponse{
		Conditions: []string{"MemoryPressure"}, SignalsTime: since, Shortages: []*nodestatusv1.Shortage{short},
		Decisions: []*nodestatusv1.EvictionDecision{
			{
				Time: since, FirstTime: since, Count: 3, Shortage: disk, Outcome: "nobody", Why: "no pod may be evicted",
				Reclaimed:  &nodestatusv1.Reclaimed{Containers: 2, Images: 1, ImageBytes: 5 << 20, Error: "image x: in use"},
				Candidates: []*nodestatusv1.EvictionCandidate{{Pod: "kube-system/dns", Usage: 12, Priority: 2000000000, Not: "of critical priority"}}, MoreCandidates: 4,
			},
			{
				Time: since, FirstTime: since, Count: 1, Shortage: short, Outcome: "evicted", Why: "it uses most", Chosen: "a/hog", Grace: durationpb.New(time.Second),
				Candidates: []*nodestatusv1.EvictionCandidate{{Pod: "a/hog", Usage: 150 << 20, Request: 50 << 20, Exceeds: true}},
			},
			{Time: since, Shortage: &nodestatusv1.Shortage{Signal: "emptydirfs.limit", Threshold: "1Mi", Available: "2Mi"}, Outcome: "refused", Chosen: "a/b", Why: "no"},
		},
	}
	var out bytes.Buffer
	if err := showShortages(&out, resp, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"short of memory.available: 50Mi left, the hard threshold is 100Mi, since ", "It has MemoryPressure", "decided 3 times since", "nodefs.inodesFree: 7 left, the soft threshold is 1k",
		"reclaimed: 2 containers, 1 images (5Mi)", "not all of it: image x: in use", "could evict nobody: no pod may be evicted", "kube-system/dns", "of critical priority", "and 4 more",
		"evicted a/hog (it has 1s to end): it uses most", "150Mi", "50Mi", "yes", "emptydirfs.limit: 1Mi allowed, 2Mi used", "would have evicted a/b: no",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestANodeThatIsShortOfNothingSaysSo(t *testing.T) {
	now := time.Now()
	for want, resp := range map[string]*nodestatusv1.ListEvictionDecisionsResponse{
		"The node is short of nothing.":                                  {SignalsTime: timestamppb.New(now)},
		"heard no figures of stats since it was started 3h ago (polylet": {BeganTime: timestamppb.New(now.Add(-3 * time.Hour))},
		"heard no figures of stats since it was started (polylet":        {}, // of an older nodestatus
	} {
		var out bytes.Buffer
		if err := showShortages(&out, resp, now); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}

func TestPodsWhoseStartIsPutOffAreShownWithWhatTheyWaitFor(t *testing.T) {
	now := time.Now()
	wait := func(kind, name string) *podsyncv1.PodWaits {
		return &podsyncv1.PodWaits{Pod: &podsyncv1.PodRef{Namespace: "a", Name: name}, Waits: []*podsyncv1.Wait{{
			Kind: kind, Reason: "the node evicted 3 pods of ReplicaSet hog", RetryTime: timestamppb.New(now.Add(20 * time.Second)),
		}}}
	}
	var out bytes.Buffer
	showPutOff(&out, []*podsyncv1.PodWaits{wait("image", "x"), wait("pressure", "hog-1"), wait("pressure", "hog-2")}, now)
	const want = "\nPods whose start is put off:\n  a/hog-1 for 20s more: the node evicted 3 pods of ReplicaSet hog\n  a/hog-2 for 20s more: the node evicted 3 pods of ReplicaSet hog\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if showPutOff(&out, []*podsyncv1.PodWaits{wait("image", "x")}, now); out.Len() > 0 {
		t.Errorf("%s", out.String())
	}
}

func TestWhoseStartIsPutOffStandsInTheStructuredAnswerToo(t *testing.T) {
	resp := &nodestatusv1.ListEvictionDecisionsResponse{Conditions: []string{"MemoryPressure"}}
	retry := timestamppb.New(time.Unix(1_000_000, 0))
	waits := []*podsyncv1.PodWaits{
		{Pod: &podsyncv1.PodRef{Namespace: "a", Name: "x"}, Waits: []*podsyncv1.Wait{{Kind: "image"}}},
		{Pod: &podsyncv1.PodRef{Namespace: "a", Name: "hog-1", Uid: "u"}, Waits: []*podsyncv1.Wait{{Kind: "image"}, {Kind: "pressure", Reason: "evicted 3 pods", RetryTime: retry}}},
	}
	for want, of := range map[string][]*podsyncv1.PodWaits{
		`{"conditions":["MemoryPressure"],"putOff":[{"pod":{"namespace":"a","name":"hog-1","uid":"u"},"waits":[{"kind":"pressure","reason":"evicted 3 pods","retryTime":"1970-01-12T13:46:40Z"}]}]}`: waits,
		`{"conditions":["MemoryPressure"],"putOff":[]}`: {}, `{"conditions":["MemoryPressure"]}`: nil,
	} {
		raw, err := nodeDocument(resp, of)()
		var compact bytes.Buffer // protojson puts in spaces at random.
		if err != nil || json.Compact(&compact, raw) != nil || compact.String() != want {
			t.Errorf("%v: %s", err, compact.String())
		}
	}
}

func TestAFileIsNamedToWhoAsksOnTheMachine(t *testing.T) {
	got := outcomeText(&nodestatusv1.EvictionDecision{Outcome: "evicted", Chosen: "a/b", Why: "container c holds 5Mi open in files that were removed", LargestFile: "/x\ny"})
	if !strings.HasSuffix(got, `removed, the largest of them "/x\ny"`) {
		t.Error(got)
	}
}

func TestANodeOfWhichNothingIsHeardAnyMoreIsNotSaidToBeShortOfNothing(t *testing.T) {
	now := time.Now()
	var out bytes.Buffer
	if err := showShortages(&out, &nodestatusv1.ListEvictionDecisionsResponse{SignalsTime: timestamppb.New(now.Add(-5 * time.Minute))}, now); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "is short of nothing") || !strings.Contains(got, "stats has told nothing for 5m") || !strings.Contains(got, "was short of nothing") {
		t.Errorf("%s", got)
	}
}

func TestANodeWithPressureIsNotSaidToBeShortOfNothingWhileAGracePeriodRuns(t *testing.T) {
	now := time.Now()
	waits := &nodestatusv1.Shortage{
		Signal: "memory.available", Threshold: "100Mi", Available: "50Mi",
		Since: timestamppb.New(now.Add(-10 * time.Minute)), DueTime: timestamppb.New(now.Add(20 * time.Minute)),
	}
	resp := &nodestatusv1.ListEvictionDecisionsResponse{SignalsTime: timestamppb.New(now), Conditions: []string{"MemoryPressure"}, Waits: []*nodestatusv1.Shortage{waits}}
	var out bytes.Buffer
	if err := showShortages(&out, resp, now); err != nil {
		t.Fatal(err)
	}
	const want = "short of memory.available: 50Mi left, the soft threshold is 100Mi, since 10m; nothing is reclaimed or evicted for it before its grace period is over, in 20m0s\n" +
		"It has MemoryPressure; a condition comes with a shortage, whatever its grace period, and stays for a while after it.\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}

func TestNothingIsSaidToBeDoneOnlyWhereItIs(t *testing.T) {
	const why = "a hard threshold leaves it none of the time that it was given"
	for outcome, want := range map[string]string{
		"held": "did nothing: " + why, "hastened": "gave a/b less time (it has 1s to end): " + why, "moved": "moved: " + why,
	} {
		if got := outcomeText(&nodestatusv1.EvictionDecision{Outcome: outcome, Chosen: "a/b", Grace: durationpb.New(time.Second), Why: why}); got != want {
			t.Errorf("%s: %s", outcome, got)
		}
	}
}
