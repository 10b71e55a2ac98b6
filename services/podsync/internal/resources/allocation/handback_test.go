package allocation

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// podOf asks for cpu, and for disk, which no resize changes.
func podOf(cpu string) *v1.Pod {
	both := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: both}}}}}
}

func entryOf(cpu string, generation int64, before *resize.Allocation) Entry {
	pod := podOf(cpu)
	rest := resize.Rest(pod)
	return Entry{Allocation: resize.Of(pod), Generation: generation, Before: before, Rest: &rest}
}

// ran runs a store on dir's files until it has handed back what do has changed.
func ran(t *testing.T, dir string, do func(*Store)) *Store {
	t.Helper()
	s := New(filepath.Join(dir, "allocations.json"), nil)
	s.LoadAll(logr.Discard(), dir)
	if do != nil {
		do(s)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Run(ended); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, uid types.UID, e Entry) func(*Store) {
	return func(s *Store) {
		t.Helper()
		if err := s.Put(t.Context(), uid, e); err != nil {
			t.Fatal(err)
		}
	}
}

// forKubelet is what a kubelet finds of the pod in a file.
func forKubelet(t *testing.T, dir, file string, uid types.UID) v1.ResourceList {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatalf("a kubelet finds nothing: %v", err)
	}
	state, _, err := parseKubelet(raw)
	if err != nil {
		t.Fatal(err)
	}
	return state.Entries[uid].ContainerResources["c"].Requests
}

func TestAKubeletThatTakesOverFindsWhatPodsAreAllocatedAndWhatIsInEffect(t *testing.T) {
	dir := t.TempDir()
	ran(t, dir, put(t, "u", entryOf("1", 0, nil)))
	for _, file := range []string{allocatedFile, actuatedFile} {
		if got := forKubelet(t, dir, file, "u"); got.Cpu().String() != "1" || got.StorageEphemeral().String() != "1Gi" {
			t.Errorf("%s: %v", file, got)
		}
	}
	had := resize.Of(podOf("1"))
	s := ran(t, dir, put(t, "u", entryOf("2", 2, &had)))
	if got := forKubelet(t, dir, allocatedFile, "u"); got.Cpu().String() != "2" {
		t.Errorf("allocated %v after a resize", got)
	}
	if got := forKubelet(t, dir, actuatedFile, "u"); got.Cpu().String() != "1" {
		t.Errorf("%v is in effect while the resize is under way", got)
	}
	s.InEffect("u", 1)
	if e, _ := s.Get("u"); e.Before == nil {
		t.Error("an earlier resize that is in effect ends this one")
	}
	ran(t, dir, func(s *Store) { s.InEffect("u", 2) })
	if got := forKubelet(t, dir, actuatedFile, "u"); got.Cpu().String() != "2" {
		t.Errorf("%v is in effect after the resize", got)
	}
	next := ran(t, dir, nil)
	if e, _ := next.Get("u"); e.Before != nil || e.Generation != 2 {
		t.Errorf("in the next run: %+v", e)
	}
}

func TestWhatIsReplacedBeforeItWasInEffectIsNotTakenForWhatWas(t *testing.T) {
	dir := t.TempDir()
	one, two := resize.Of(podOf("1")), resize.Of(podOf("2"))
	ran(t, dir, func(s *Store) {
		put(t, "u", entryOf("2", 2, &one))(s)
		put(t, "u", entryOf("3", 3, &two))(s)
	})
	if got := forKubelet(t, dir, actuatedFile, "u"); got.Cpu().String() != "1" {
		t.Errorf("%v is in effect", got)
	}
}

func TestWhatAKubeletAllocatedMeanwhileIsTakenOverAgain(t *testing.T) {
	dir := t.TempDir()
	ran(t, dir, func(s *Store) {
		put(t, "u", entryOf("1", 1, nil))(s)
		put(t, "v", entryOf("1", 4, nil))(s)
	})
	path := filepath.Join(dir, allocatedFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state, ours, err := parseKubelet(raw)
	if err != nil || !ours {
		t.Fatalf("ours %v, %v", ours, err)
	}
	pod := podOf("3")
	state.Entries["u"] = kubeletPod{ContainerResources: map[string]v1.ResourceRequirements{"c": pod.Spec.Containers[0].Resources}}
	data, _ := json.Marshal(state)
	raw, _ = json.Marshal(map[string]any{"data": string(data), "checksum": kubeletChecksum(string(data))})
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s := ran(t, dir, nil)
	if e, _ := s.Get("u"); !e.Equal(resize.Of(pod)) {
		t.Errorf("of the pod that the kubelet has resized: %+v", e)
	}
	if e, _ := s.Get("v"); e.Generation != 4 {
		t.Errorf("of the pod that it has not: %+v", e)
	}
	if next := ran(t, dir, nil); !next.handback.kept {
		t.Error("the next run does not know that the kubelet's files were kept")
	}
}

func TestWhoRemovesTheFileOfAllocationsLosesNone(t *testing.T) {
	dir := t.TempDir()
	ran(t, dir, put(t, "u", entryOf("1", 0, nil)))
	if err := os.Remove(filepath.Join(dir, "allocations.json")); err != nil {
		t.Fatal(err)
	}
	if e, _ := ran(t, dir, nil).Get("u"); !e.Equal(resize.Of(podOf("1"))) {
		t.Errorf("%+v", e)
	}
}

func TestADamagedFileOfAllocationsLosesNone(t *testing.T) {
	dir := t.TempDir()
	ran(t, dir, put(t, "u", entryOf("1", 0, nil)))
	if err := os.WriteFile(filepath.Join(dir, "allocations.json"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e, _ := ran(t, dir, nil).Get("u"); !e.Equal(resize.Of(podOf("1"))) {
		t.Errorf("%+v", e)
	}
	if got := forKubelet(t, dir, actuatedFile, "u"); got.Cpu().String() != "1" {
		t.Errorf("a kubelet is told %v", got)
	}
}

// An earlier release left the file of a kubelet that was before it as it was.
func TestAnOldFileOfAKubeletIsNotTakenForWhatOneDidSince(t *testing.T) {
	dir := t.TempDir()
	old, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, allocatedFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	e := entry("7")
	before := New(filepath.Join(dir, "allocations.json"), nil)
	if err := before.file.Write(contents{Pods: map[types.UID]Entry{fixturePod: e, "young": e}}); err != nil {
		t.Fatal(err)
	}
	s := ran(t, dir, nil)
	if got, _ := s.Get(fixturePod); !got.Equal(e.Allocation) {
		t.Errorf("%+v", got)
	}
	if got := forKubelet(t, dir, allocatedFile, fixturePod); got.Cpu().String() != "7" {
		t.Errorf("of a pod that the kubelet had a kubelet is told %v", got)
	}
	if got := forKubelet(t, dir, allocatedFile, "young"); got != nil {
		t.Errorf("of a pod of which only half is known a kubelet is told %v", got)
	}
}

// The kubelet's file may say what was long ago for as long as it cannot be written, or
// until podsync, which is killed, comes to it.
func TestWhatIsKeptIsNotReplacedByAFileOfAKubeletThatWasNotWrittenYet(t *testing.T) {
	old, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	for name, earlier := range map[string]func(t *testing.T, dir string){
		"an earlier release was there": func(t *testing.T, dir string) {
			before := New(filepath.Join(dir, "allocations.json"), nil)
			if err := before.file.Write(contents{Pods: map[types.UID]Entry{fixturePod: entry("7")}}); err != nil {
				t.Fatal(err)
			}
		},
		"nobody was":                      func(*testing.T, string) {},
		"a kubelet was there, in between": func(t *testing.T, dir string) { ran(t, dir, put(t, "u", entryOf("1", 1, nil))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			earlier(t, dir)
			if err := os.WriteFile(filepath.Join(dir, allocatedFile), old, 0o600); err != nil {
				t.Fatal(err)
			}
			killed := New(filepath.Join(dir, "allocations.json"), nil)
			killed.LoadAll(logr.Discard(), dir)
			put(t, fixturePod, entryOf("9", 5, nil))(killed)
			if e, _ := ran(t, dir, nil).Get(fixturePod); e.Generation != 5 || !e.Equal(resize.Of(podOf("9"))) {
				t.Errorf("it is %+v", e)
			}
		})
	}
}

func TestWhatAKubeletAllocatedIsTakenOverThoughNothingWasKeptSinceTheUpgrade(t *testing.T) {
	dir := t.TempDir()
	before := New(filepath.Join(dir, "allocations.json"), nil)
	if err := before.file.Write(contents{Pods: map[types.UID]Entry{fixturePod: entry("7")}}); err != nil {
		t.Fatal(err)
	}
	ran(t, dir, nil)
	kubelets, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, allocatedFile), kubelets, 0o600); err != nil {
		t.Fatal(err)
	}
	if e, _ := ran(t, dir, nil).Get(fixturePod); e.Equal(entry("7").Allocation) {
		t.Errorf("it is %+v", e)
	}
}

// A kubelet holds a container without a limit of its own to the pod's, and a resize that
// is not in effect to be under way for ever.
func TestAKubeletFindsThatTheLimitsOfThePodAreInEffectForItsContainers(t *testing.T) {
	pod := podOf("1")
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Gi")}}
	rest := resize.Rest(pod)
	dir := t.TempDir()
	ran(t, dir, put(t, "u", Entry{Allocation: resize.Of(pod), Rest: &rest}))
	for file, want := range map[string]string{allocatedFile: "0", actuatedFile: "1Gi"} {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		state, _, err := parseKubelet(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := state.Entries["u"].ContainerResources["c"].Limits; got.Cpu().String() != "2" || got.Memory().String() != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

// A kubelet puts what it finds in the place of what the container's spec asks for.
func TestAKubeletFindsTheDevicesThatContainersClaim(t *testing.T) {
	pod := podOf("1")
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu", Request: "big"}}
	rest := resize.Rest(pod)
	dir := t.TempDir()
	claims := func(file string) []v1.ResourceClaim {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		state, _, err := parseKubelet(raw)
		if err != nil {
			t.Fatal(err)
		}
		return state.Entries["u"].ContainerResources["c"].Claims
	}
	ran(t, dir, put(t, "u", Entry{Allocation: resize.Of(pod), Rest: &rest}))
	for _, file := range []string{allocatedFile, actuatedFile} {
		if got := claims(file); len(got) != 1 || got[0] != pod.Spec.Containers[0].Resources.Claims[0] {
			t.Errorf("%s: %v", file, got)
		}
	}
	if err := os.Remove(filepath.Join(dir, "allocations.json")); err != nil {
		t.Fatal(err)
	}
	ran(t, dir, nil) // takes them over from there
	if got := claims(allocatedFile); len(got) != 1 {
		t.Errorf("of what was taken over: %v", got)
	}
}

func TestADamagedFileOfAKubeletStaysUntilThisProcessHasItsOwn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, allocatedFile)
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	ran(t, dir, nil)
	if got, _ := os.ReadFile(path); string(got) != "damaged" {
		t.Errorf("it became %q", got)
	}
	ran(t, dir, put(t, "u", entryOf("1", 0, nil)))
	if got := forKubelet(t, dir, allocatedFile, "u"); got.Cpu().String() != "1" {
		t.Errorf("a kubelet is told %v", got)
	}
	if aside, _ := filepath.Glob(path + ".*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
}
