package eviction

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestWhoeverIsLateIsWaitedForOnlyIfItMayGoFirst(t *testing.T) {
	one, apart := threshold.Layout{}, threshold.Layout{ImagesApart: true}
	candidate := func(name string, priority int32, usage, request int64) Candidate {
		return Candidate{Pod: pod(name, priority, nil), Usage: usage, Request: request, Exceeds: usage > request, Priority: priority}
	}
	not := func(c Candidate) Candidate { c.Not = "spared"; return c }
	unknown := func(name string) Candidate {
		return Candidate{Pod: pod(name, 0, nil), Not: "stats has no figures of it", Unknown: true}
	}
	set := func(names ...string) map[types.UID]bool {
		out := map[types.UID]bool{}
		for _, name := range names {
			out[types.UID(name)] = true
		}
		return out
	}
	first := candidate("first", 0, 300, 0)
	for name, c := range map[string]struct {
		signal string
		layout threshold.Layout
		used   uint64
		ranked []Candidate
		late   Late
		want   string
	}{
		"all were measured":              {"nodefs.available", one, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{}, ""},
		"nobody may go":                  {"nodefs.available", one, 900, []Candidate{not(first)}, Late{Layers: set("first")}, ""},
		"there is nobody":                {"nodefs.available", one, 900, nil, Late{}, ""},
		"the first":                      {"nodefs.available", one, 900, []Candidate{first}, Late{Directories: set("first")}, "first"},
		"another":                        {"nodefs.available", one, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Layers: set("b")}, "b"},
		"another, its volumes":           {"nodefs.available", one, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Directories: set("b")}, "b"},
		"another, its open files":        {"nodefs.available", one, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Holders: set("b")}, "b"},
		"not so much is left":            {"nodefs.available", one, 600, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Layers: set("b")}, ""},
		"no more than it asked for":      {"nodefs.available", one, 900, []Candidate{first, candidate("b", 0, 1, 400)}, Late{Layers: set("b")}, ""},
		"one that counts for more":       {"nodefs.available", one, 900, []Candidate{first, candidate("b", 1, 1, 0)}, Late{Layers: set("b")}, ""},
		"one that counts for less":       {"nodefs.available", one, 400, []Candidate{first, candidate("b", -1, 1, 50)}, Late{Layers: set("b")}, "b"},
		"less, but never over its share": {"nodefs.available", one, 400, []Candidate{first, candidate("b", -1, 1, 150)}, Late{Layers: set("b")}, ""},
		"one that may not go":            {"nodefs.available", one, 900, []Candidate{first, not(candidate("b", 0, 1, 0))}, Late{Layers: set("b")}, ""},
		"one without figures":            {"nodefs.available", one, 900, []Candidate{first, unknown("b")}, Late{Layers: set("b")}, "b"},
		"one that does not run yet":      {"nodefs.available", one, 900, []Candidate{first, unknown("b")}, Late{}, ""},
		"nobody exceeds":                 {"nodefs.available", one, 310, []Candidate{candidate("first", 0, 300, 500), candidate("b", 5, 1, 2)}, Late{Layers: set("b")}, "b"},
		"layers of another disk":         {"nodefs.available", apart, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Layers: set("b", "first")}, ""},
		"volumes of another disk":        {"imagefs.available", apart, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Directories: set("b", "first")}, ""},
		"layers of this disk":            {"imagefs.inodesFree", apart, 900, []Candidate{first, candidate("b", 0, 1, 0)}, Late{Layers: set("b")}, "b"},
	} {
		got := ""
		if p := Unsure(pressure.Signal{Name: c.signal, Capacity: 1000, Available: 1000 - c.used}, c.layout, c.ranked, c.late); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLayersThatWereMeasuredBeforeAShortageAreLate(t *testing.T) {
	began := time.Unix(1000, 0)
	of := func(at time.Time) Figures {
		rootfs := &statsapi.FsStats{Time: metav1.NewTime(at)}
		return Figures{
			"u":     {Containers: []statsapi.ContainerStats{{Memory: &statsapi.MemoryStats{}, Rootfs: rootfs}}},
			"ended": {Containers: []statsapi.ContainerStats{{Rootfs: rootfs}}}, // It has the same since then.
		}
	}
	said := Late{Layers: map[types.UID]bool{"other": true}, Directories: map[types.UID]bool{"third": true}}
	for name, test := range map[string]struct {
		at   time.Time
		want bool
	}{
		"before": {began.Add(-time.Second), true}, "since": {began, false}, "unknown": {time.Time{}, false},
	} {
		got := said.With(of(test.at), began.Add(300*time.Millisecond))
		if got.Layers["u"] != test.want || !got.Layers["other"] || !got.Directories["third"] || got.Layers["ended"] || len(said.Layers) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := (Late{}).With(of(began.Add(-time.Second)), began); !got.Layers["u"] {
		t.Errorf("of an older stats: %+v", got)
	}
}

func TestOfAPodWithALayerThatWasNeverWeighedNobodyKnowsWhetherItsEndIsEnough(t *testing.T) {
	p, of := pod("p", 0, nil), stats("p", 1, 1, 1*mi, 0, nil)
	disk := met("nodefs.available", "100Mi", 0, 1*mi, 8<<30)
	if Enough(disk, threshold.Layout{}, p, of, true) {
		t.Error("of one that was")
	}
	if none := stats("p", 1, 1, 0, 0, nil); !Enough(disk, threshold.Layout{}, p, none, true) || Enough(disk, threshold.Layout{}, p, none, false) {
		t.Error("of one of which the runtime says 0 at no time")
	}
	of.Containers[0].Rootfs = nil
	if !Enough(disk, threshold.Layout{}, p, of, true) || Enough(disk, threshold.Layout{ImagesApart: true}, p, of, true) {
		t.Error("it has nothing, or it counts on another disk")
	}
}
