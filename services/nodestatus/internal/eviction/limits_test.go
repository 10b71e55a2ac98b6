package eviction

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
)

func TestAPodThatExceedsALimitOfLocalStorageIsNamedWithTheKubeletsWords(t *testing.T) {
	limited := func(limit string) *v1.Pod {
		p := pod("p", 0, nil)
		if limit != "" {
			p.Spec.Containers[0].Resources.Limits = asks("ephemeral-storage", limit)
		}
		return p
	}
	with := func(p *v1.Pod, volumes ...v1.Volume) *v1.Pod {
		p.Spec.Volumes = volumes
		return p
	}
	critical := with(limited(""), emptyDir("cache", "1Mi", ""))
	*critical.Spec.Priority = 2_000_000_000
	ended := with(limited(""), emptyDir("cache", "1Mi", ""))
	ended.Status.Phase = v1.PodSucceeded
	// Two containers may have more together than one of them.
	two := limited("1Mi")
	two.Spec.Containers = append(two.Spec.Containers, *two.Spec.Containers[0].DeepCopy())
	two.Spec.Containers[1].Name, two.Spec.Containers[1].Resources.Limits = "d", asks("ephemeral-storage", "100Mi")
	apart := threshold.Layout{ImagesApart: true}
	clones := stats("p", 0, 0, 0, 0, map[string]uint64{"cache": 1 << 50})
	for name, test := range map[string]struct {
		pod     *v1.Pod
		stats   *statsapi.PodStats
		layout  threshold.Layout
		signal  string
		message string
	}{
		"a volume":                      {with(limited(""), emptyDir("a", "", ""), emptyDir("cache", "1Mi", "")), stats("p", 0, 0, 0, 0, map[string]uint64{"a": 9 * mi, "cache": 2 * mi}), threshold.Layout{}, emptyDirLimit, `Usage of EmptyDir volume "cache" exceeds the limit "1Mi". `},
		"one in memory":                 {with(limited(""), emptyDir("m", "1Mi", v1.StorageMediumMemory)), stats("p", 0, 0, 0, 0, map[string]uint64{"m": 2 * mi}), threshold.Layout{}, emptyDirLimit, `Usage of EmptyDir volume "m" exceeds the limit "1Mi". `},
		"the limit is allowed":          {with(limited(""), emptyDir("cache", "2Mi", "")), stats("p", 0, 0, 0, 0, map[string]uint64{"cache": 2 * mi}), threshold.Layout{}, "", ""},
		"a limit of nothing":            {with(limited(""), emptyDir("cache", "0", "")), stats("p", 0, 0, 0, 0, map[string]uint64{"cache": 2 * mi}), threshold.Layout{}, "", ""},
		"the pod":                       {with(limited("5Mi"), emptyDir("a", "", "")), stats("p", 0, 0, 1*mi, 1*mi, map[string]uint64{"a": 4 * mi}), threshold.Layout{}, podLimit, "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "},
		"a container":                   {two, stats("p", 0, 0, 1*mi, 1, nil), threshold.Layout{}, containerLimit, `Container c exceeded its local ephemeral storage limit "1Mi". `},
		"its layer is elsewhere":        {two, stats("p", 0, 0, 9*mi, 1, nil), apart, "", ""},
		"its log is not":                {two, stats("p", 0, 0, 0, 2*mi, nil), apart, containerLimit, `Container c exceeded its local ephemeral storage limit "1Mi". `},
		"a critical pod":                {critical, stats("p", 0, 0, 0, 0, map[string]uint64{"cache": 2 * mi}), threshold.Layout{}, "", ""},
		"a pod that has ended":          {ended, stats("p", 0, 0, 0, 0, map[string]uint64{"cache": 2 * mi}), threshold.Layout{}, "", ""},
		"files that share their blocks": {with(limited(""), emptyDir("cache", "1Mi", "")), clones, threshold.Layout{}, emptyDirLimit, `Usage of EmptyDir volume "cache" exceeds the limit "1Mi". `},
		"no figures":                    {with(limited(""), emptyDir("cache", "1Mi", "")), &statsapi.PodStats{PodRef: statsapi.PodReference{UID: "other"}}, threshold.Layout{}, "", ""},
	} {
		got := Breaches([]*v1.Pod{test.pod}, figures(test.stats), nil, test.layout)
		switch {
		case test.signal == "" && len(got) > 0, test.signal != "" && len(got) != 1:
			t.Errorf("%s: %+v", name, got)
		case test.signal != "" && got[0].Sum != (name == "the pod" || name == "a container"):
			t.Errorf("%s: Sum %v", name, got[0].Sum)
		case test.signal != "" && (got[0].Signal != test.signal || got[0].Message != test.message || got[0].Pod != test.pod):
			t.Errorf("%s: %s, %q", name, got[0].Signal, got[0].Message)
		}
	}
}

func TestWhatEndedContainersHaveLeftCountsForRankingAndForLimitsButNotOfInitContainers(t *testing.T) {
	left := func(name string, layer, logs uint64) statsapi.ContainerStats {
		out := statsapi.ContainerStats{Name: name, Rootfs: bytesOf(layer)}
		if logs > 0 {
			out.Logs = bytesOf(logs)
		}
		return out
	}
	always := v1.ContainerRestartPolicyAlways
	limited := pod("p", 0, nil)
	limited.Spec.Containers[0].Resources.Limits = asks("ephemeral-storage", "5Mi")
	limited.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}}
	for name, test := range map[string]struct {
		containers []statsapi.ContainerStats
		signal     string
	}{
		"one that crashed":              {[]statsapi.ContainerStats{left("c", 4*mi, 2*mi)}, podLimit},
		"an older instance":             {[]statsapi.ContainerStats{left("", 9*mi, 0)}, ""},
		"an init container":             {[]statsapi.ContainerStats{left("init", 8*mi, 1*mi), left("c", 4*mi, 0)}, ""},
		"a sidecar that crashed":        {[]statsapi.ContainerStats{left("sidecar", 8*mi, 1*mi)}, podLimit},
		"an init container with others": {[]statsapi.ContainerStats{left("init", 8*mi, 0), left("c", 6*mi, 0)}, podLimit},
	} {
		s := &statsapi.PodStats{PodRef: statsapi.PodReference{UID: "p"}, Containers: test.containers}
		var all, named uint64
		for _, c := range test.containers {
			n := *c.Rootfs.UsedBytes
			if c.Logs != nil {
				n += *c.Logs.UsedBytes
			}
			if all += n; c.Name != "" {
				named += n
			}
		}
		s.EphemeralStorage = bytesOf(named)
		got := Breaches([]*v1.Pod{limited}, figures(s), nil, threshold.Layout{})
		if len(got) > 0 != (test.signal != "") || len(got) > 0 && got[0].Signal != test.signal {
			t.Errorf("%s: %+v", name, got)
		}
		by := met("nodefs.available", "1Mi", 0, 1, 1<<40).By
		if ranked := Rank(by, threshold.Layout{}, []*v1.Pod{limited}, figures(s), nil); ranked[0].Not != "" || ranked[0].Usage != whole(all) {
			t.Errorf("%s: %+v, which has %d", name, ranked, all)
		}
	}
	apart := threshold.Layout{ImagesApart: true}
	two := limited.DeepCopy()
	two.Spec.Containers = append(two.Spec.Containers, v1.Container{Name: "d", Resources: v1.ResourceRequirements{Limits: asks("ephemeral-storage", "90Mi")}})
	s := &statsapi.PodStats{PodRef: statsapi.PodReference{UID: "p"}, Containers: []statsapi.ContainerStats{left("c", 0, 6*mi)}, EphemeralStorage: bytesOf(6 * mi)}
	if got := Breaches([]*v1.Pod{two}, figures(s), nil, apart); len(got) != 1 || got[0].Signal != containerLimit {
		t.Errorf("its logs: %+v", got)
	}
}

func TestFilesThatWereRemovedAndAreOpenCountForLimits(t *testing.T) {
	held := []Unlinked{{Container: "c", Root: Files{Bytes: 3 * mi}, Largest: "/scratch/f"}}
	layer := []Unlinked{{Container: "c", Layer: Files{Bytes: 3 * mi}, Largest: "/f"}}
	limited := func(limit string, volumes ...v1.Volume) *v1.Pod {
		p := pod("p", 0, nil)
		p.Spec.Volumes = volumes
		if limit != "" {
			p.Spec.Containers[0].Resources.Limits = asks("ephemeral-storage", limit)
		}
		return p
	}
	host := v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}}
	apart := threshold.Layout{ImagesApart: true}
	two := limited("4Mi")
	two.Spec.Containers = append(two.Spec.Containers, *limited("100Mi").Spec.Containers[0].DeepCopy())
	two.Spec.Containers[1].Name = "d"
	inA := []Unlinked{{Container: "c", Root: Files{Bytes: 3 * mi}, Volumes: map[string]Files{"a": {Bytes: 3 * mi}}, Largest: "/scratch/f"}}
	inCache := []Unlinked{
		{Container: "c", Root: Files{Bytes: 3 * mi}, Volumes: map[string]Files{"cache": {Bytes: 2 * mi}, "a": {Bytes: 1 * mi}}, Largest: "/scratch/f"},
		{Container: "d", Root: Files{Bytes: 1 * mi}, Volumes: map[string]Files{"cache": {Bytes: 1 * mi}}},
	}
	for name, test := range map[string]struct {
		pod    *v1.Pod
		held   []Unlinked
		layout threshold.Layout
		signal string
	}{
		"known to be in this volume":        {limited("", emptyDir("cache", "4Mi", ""), emptyDir("a", "", ""), host), inCache, threshold.Layout{}, emptyDirLimit},
		"known to be in the other volume":   {limited("", emptyDir("cache", "4Mi", ""), emptyDir("a", "", "")), inA, threshold.Layout{}, ""},
		"known to be in the only volume":    {limited("", emptyDir("a", "4Mi", "")), inA, threshold.Layout{}, emptyDirLimit},
		"known, though the host's is there": {limited("4Mi", emptyDir("a", "", ""), host), inA, threshold.Layout{}, podLimit},
		"known to be in none of its own":    {limited("4Mi", emptyDir("cache", "4Mi", "")), inA, threshold.Layout{}, ""},
		"the pod":                           {limited("4Mi"), held, threshold.Layout{}, podLimit},
		"the pod, in a layer":               {limited("4Mi"), layer, threshold.Layout{}, podLimit},
		"a container":                       {two, layer, threshold.Layout{}, containerLimit},
		"its layer is elsewhere":            {two, layer, apart, ""},
		"nothing is held":                   {limited("4Mi"), nil, threshold.Layout{}, ""},
		"the only volume":                   {limited("", emptyDir("cache", "4Mi", "")), held, threshold.Layout{}, emptyDirLimit},
		"one in memory beside it":           {limited("", emptyDir("cache", "4Mi", ""), emptyDir("m", "", v1.StorageMediumMemory)), held, threshold.Layout{}, emptyDirLimit},
		"one of two volumes":                {limited("", emptyDir("cache", "4Mi", ""), emptyDir("a", "", "")), held, threshold.Layout{}, ""},
		"it may be in the host's directory": {limited("4Mi", emptyDir("cache", "4Mi", ""), host), held, threshold.Layout{}, ""},
	} {
		volumes := map[string]uint64{}
		for _, v := range test.pod.Spec.Volumes {
			volumes[v.Name] = 2 * mi
		}
		layer := uint64(2 * mi)
		if len(volumes) > 0 {
			layer = 0
		}
		got := Breaches([]*v1.Pod{test.pod}, figures(stats("p", 0, 0, layer, 0, volumes)), map[types.UID][]Unlinked{test.pod.UID: test.held}, test.layout)
		if test.signal == "" && len(got) > 0 || test.signal != "" && (len(got) != 1 || got[0].Signal != test.signal || !strings.Contains(got[0].Unlinked.String(), "container c holds 3Mi open")) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestOnlyPodsWithALimitHaveToBeMeasuredForIt(t *testing.T) {
	plain, volume, container := pod("p", 0, nil), pod("p", 0, nil), pod("p", 0, nil)
	plain.Spec.Volumes = []v1.Volume{emptyDir("a", "", "")}
	volume.Spec.Volumes = []v1.Volume{emptyDir("a", "1Mi", "")}
	container.Spec.Containers[0].Resources.Limits = asks("ephemeral-storage", "1Mi")
	if Limited(plain) || !Limited(volume) || !Limited(container) {
		t.Errorf("%t, %t, %t", Limited(plain), Limited(volume), Limited(container))
	}
}

func TestWhetherAPodsEndMayBeEnoughFollowsFromWhatItHad(t *testing.T) {
	p := pod("p", 0, nil)
	of := stats("p", 60*mi, 3, 10*mi, 20*mi, nil)
	for name, c := range map[string]struct {
		signal    string
		available uint64
		of        *statsapi.PodStats
		want      bool
	}{
		"memory, enough":     {"memory.available", 50 * mi, of, true},
		"memory, not enough": {"memory.available", 30 * mi, of, false},
		"a disk, enough":     {"nodefs.available", 75 * mi, of, true},
		"a disk, not enough": {"nodefs.available", 60 * mi, of, false},
		"nobody knows":       {"nodefs.available", 60 * mi, nil, true},
	} {
		if got := Enough(met(c.signal, "100Mi", 0, c.available, 8<<30), threshold.Layout{}, p, c.of, true); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
