package eviction

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestMemoryComesBeforeAllElseAndHardThresholdsBeforeSoftOnes(t *testing.T) {
	soft := func(m pressure.Met) pressure.Met {
		m.Hard, m.Grace = false, time.Minute
		return m
	}
	due := []pressure.Met{
		soft(met("imagefs.available", "1", 0, 0, 9)), met("pid.available", "1", 0, 0, 9), soft(met("memory.available", "1", 0, 0, 9)),
		met("nodefs.available", "1", 0, 0, 9), met("allocatableMemory.available", "1", 0, 0, 9),
	}
	var got []string
	for _, m := range Order(due) {
		got = append(got, m.Signal)
	}
	want := []string{"allocatableMemory.available", "memory.available", "pid.available", "nodefs.available", "imagefs.available"}
	if !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestWhatIsReclaimedFirstFollowsFromWhereImagesAndLayersAre(t *testing.T) {
	one, apart, split := threshold.Layout{}, threshold.Layout{ImagesApart: true}, threshold.Layout{ImagesApart: true, ContainersApart: true}
	both, none := Reclaim{Containers: true, Images: true}, Reclaim{}
	for _, test := range []struct {
		signal            string
		one, apart, split Reclaim
	}{
		{"memory.available", none, none, none},
		{"allocatableMemory.available", none, none, none},
		{"pid.available", none, none, none},
		{"nodefs.available", both, none, Reclaim{Containers: true}},
		{"nodefs.inodesFree", both, none, Reclaim{Containers: true}},
		{"imagefs.available", both, both, Reclaim{Images: true}},
		{"imagefs.inodesFree", both, both, Reclaim{Images: true}},
		{"containerfs.available", both, both, Reclaim{Containers: true}},
	} {
		if a, b, c := Reclaimable(test.signal, one), Reclaimable(test.signal, apart), Reclaimable(test.signal, split); a != test.one || b != test.apart || c != test.split {
			t.Errorf("%s: %v, %v, %v", test.signal, a, b, c)
		}
	}
}

func TestAHardThresholdGivesASecondAndASoftOneThePodsOwnTimeUpToTheLongest(t *testing.T) {
	hard, soft := threshold.Threshold{Hard: true}, threshold.Threshold{Grace: time.Minute}
	own, forever := int64(30), int64(1)<<62
	endless := &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &forever}}
	with, without := &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &own}}, &v1.Pod{}
	for _, test := range []struct {
		threshold     threshold.Threshold
		pod           *v1.Pod
		longest, want time.Duration
	}{
		{hard, with, time.Hour, time.Second},
		{soft, with, time.Hour, 30 * time.Second},
		{soft, with, 10 * time.Second, 10 * time.Second},
		{soft, with, 0, 0},
		{soft, with, -time.Second, 0},
		{soft, without, -time.Second, 0},
		{soft, endless, 10 * time.Second, 10 * time.Second},
		{soft, without, 10 * time.Second, 10 * time.Second},
	} {
		if got := Grace(test.threshold, test.pod, test.longest); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestStaticMirrorAndCriticalPodsAreSpared(t *testing.T) {
	static := pod("static", 0, nil)
	static.Annotations["kubernetes.io/config.source"] = "file"
	mirror := pod("mirror", 0, nil)
	mirror.Annotations[v1.MirrorPodAnnotationKey] = "x"
	for _, test := range []struct {
		pod    *v1.Pod
		spared bool
	}{
		{pod("ordinary", 1000, nil), false},
		{&v1.Pod{}, false},
		{static, true},
		{mirror, true},
		{pod("critical", 2_000_000_000, nil), true},
	} {
		if why := Spared(test.pod); (why != "") != test.spared {
			t.Errorf("%s: %q", test.pod.Name, why)
		}
	}
}

func TestFiguresAreFoundByThePodsUID(t *testing.T) {
	got := FiguresOf(&statsapi.Summary{Pods: []statsapi.PodStats{{PodRef: statsapi.PodReference{UID: "a"}}, {PodRef: statsapi.PodReference{UID: "b"}}}})
	if len(got) != 2 || got["b"].PodRef.UID != "b" || got["c"] != nil {
		t.Errorf("%v", got)
	}
}
