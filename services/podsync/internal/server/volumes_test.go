package server

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// standing has every volume stand in one way, and remembers whose pods had ended.
type standing struct {
	measured
	ended map[types.UID]bool
}

func (s standing) Standings(pod *v1.Pod, ended bool) []volume.Standing {
	s.ended[pod.UID] = ended
	var list []volume.Standing
	for i := range pod.Spec.Volumes {
		list = append(list, volume.Standing{
			Name: pod.Spec.Volumes[i].Name, Plugin: "p", Driver: "d", Claim: "c", PV: "pv", Path: "/x", Device: true, Project: 7, Progress: volume.Progress(i),
		})
	}
	return list
}

// stuck has a volume "b" wait, and an image of the same name.
type stuck struct{ Explainer }

func (stuck) Explain(types.UID) (podcache.Explanation, bool) {
	return podcache.Explanation{Waits: []podstate.Wait{
		{Kind: "volume", Object: "b", Reason: "PVC is not bound"}, {Kind: "image", Object: "b", Reason: "no such image"},
	}}, true
}

func TestVolumesAreListedWithHowTheyStandAndWhatTheyWaitFor(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		ask := func(name string) (*podsyncv1.ListVolumesResponse, error) {
			req := &podsyncv1.ListVolumesRequest{Name: name}
			if name != "" {
				req.Namespace = "ns"
			}
			return r.client.ListVolumes(t.Context(), req)
		}
		if _, err := ask(""); status.Code(err) != codes.Unimplemented {
			t.Errorf("where there are no volumes: %v", err)
		}
		s := standing{ended: map[types.UID]bool{}}
		r.server.deps.Volumes, r.server.deps.Explain = s, stuck{}
		add := func(name string, phase v1.PodPhase, volumes ...string) {
			pod := runningPod()
			pod.Pod = pod.Pod.DeepCopy()
			pod.Pod.Name, pod.Pod.UID, pod.Pod.Spec.Volumes = name, types.UID("uid of "+name), nil
			for _, v := range volumes {
				pod.Pod.Spec.Volumes = append(pod.Pod.Spec.Volumes, v1.Volume{Name: v})
			}
			pod.Status.Phase = phase
			r.pods.Set(pod)
		}
		add("second", v1.PodFailed, "a")
		add("first", v1.PodRunning, "a", "b", "c", "d", "e", "f")
		add("without", v1.PodRunning)
		got, err := ask("")
		if err != nil || len(got.GetPods()) != 2 || got.GetPods()[0].GetPod().GetName() != "first" || got.GetPods()[1].GetPod().GetName() != "second" {
			t.Fatalf("%v, %v", got, err)
		}
		if s.ended["uid of first"] || !s.ended["uid of second"] {
			t.Errorf("ended: %v", s.ended)
		}
		for i, v := range got.GetPods()[0].GetVolumes() {
			want := podsyncv1.VolumeStanding(i + 1)
			if i == 5 {
				want = podsyncv1.VolumeStanding_VOLUME_STANDING_UNSPECIFIED
			}
			if v.GetStanding() != want || (len(v.GetWaits()) == 1) != (v.GetName() == "b") {
				t.Errorf("%v, want %v", v, want)
			}
		}
		v := got.GetPods()[0].GetVolumes()[1]
		if v.GetPlugin() != "p" || v.GetDriver() != "d" || v.GetPvcName() != "c" || v.GetPvName() != "pv" || v.GetHostPath() != "/x" || !v.GetDevice() || v.GetProjectId() != 7 || v.GetWaits()[0].GetReason() != "PVC is not bound" {
			t.Errorf("%v", v)
		}
		one, err := ask("second")
		if err != nil || len(one.GetPods()) != 1 || !proto.Equal(one.GetPods()[0], got.GetPods()[1]) {
			t.Errorf("one: %v, %v", one, err)
		}
		if _, err := ask("nobody"); status.Code(err) != codes.NotFound {
			t.Errorf("of nobody: %v", err)
		}
	})
}

// goingAway has the volumes of a pod that ends: one is on its way, and one is gone.
type goingAway struct{ measured }

func (goingAway) Standings(*v1.Pod, bool) []volume.Standing {
	return []volume.Standing{{Name: "v", PV: "pv", Dir: "pv", Progress: volume.Going}, {Name: "e", Dir: "e", Progress: volume.Gone}}
}

// ending tells of a pod's end as it is told of: volumes by what their directories are called, and
// all together once it has failed.
type ending struct{ Explainer }

func (ending) Explain(types.UID) (podcache.Explanation, bool) {
	return podcache.Explanation{Waits: []podstate.Wait{{Kind: "volume", Object: "pv", Reason: "not unmounted yet"}, {Kind: "volume", Reason: "it hangs"}}}, true
}

func TestAVolumeThatCannotBeTakenDownSaysWhatItWaitsFor(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.server.deps.Volumes, r.server.deps.Explain = goingAway{}, ending{}
		pod := runningPod()
		pod.Pod = pod.Pod.DeepCopy()
		pod.Pod.Spec.Volumes = []v1.Volume{{Name: "v"}, {Name: "e"}}
		r.pods.Set(pod)
		got, err := r.client.ListVolumes(t.Context(), &podsyncv1.ListVolumesRequest{})
		if err != nil || len(got.GetPods()) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		for i, want := range [][]string{{"not unmounted yet", "it hangs"}, nil} {
			var reasons []string
			for _, w := range got.GetPods()[0].GetVolumes()[i].GetWaits() {
				reasons = append(reasons, w.GetReason())
			}
			if !slices.Equal(reasons, want) {
				t.Errorf("%s waits for %q", got.GetPods()[0].GetVolumes()[i].GetName(), reasons)
			}
		}
	})
}

func TestAVolumeThatIsGoneWaitsForNothingOfAnothersName(t *testing.T) {
	waits := map[string][]*podsyncv1.Wait{"x": {{Kind: "volume", Object: "x", Reason: "volume x is not unmounted yet"}}}
	for progress, want := range map[volume.Progress]int{volume.Gone: 0, volume.Going: 1, volume.Waiting: 1} {
		if got := waitsOf(volume.Standing{Name: "x", Progress: progress, Dir: "x"}, waits); len(got) != want {
			t.Errorf("%v: %v", progress, got)
		}
	}
}

// leftBehind is a volume that could not be unstaged.
type leftBehind struct{ since time.Time }

func (l leftBehind) Unsettled() []csi.Unsettled {
	return []csi.Unsettled{{
		Plugin: "kubernetes.io/csi", Driver: "csi.x", Handle: "h", Path: "/staged", PV: "pv", Device: true,
		Why: "its driver is away", Advice: "start it", Since: l.since, Retry: l.since.Add(time.Hour),
	}}
}

func TestVolumesThatCouldNotBeTakenFromTheNodeAreListedWithoutAPod(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		left := leftBehind{time.Now()}
		r.server.deps.Volumes, r.server.deps.Unsettled = standing{ended: map[types.UID]bool{}}, left
		pod := runningPod()
		pod.Pod = pod.Pod.DeepCopy()
		pod.Pod.Spec.Volumes = []v1.Volume{{Name: "v"}}
		r.pods.Set(pod)
		got, err := r.client.ListVolumes(t.Context(), &podsyncv1.ListVolumesRequest{})
		if err != nil || len(got.GetPods()) != 2 || got.GetPods()[0].GetPod().GetName() != pod.Pod.Name || got.GetPods()[1].Pod != nil || len(got.GetPods()[1].GetVolumes()) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		want := &podsyncv1.VolumeState{
			Name: "h", Plugin: "kubernetes.io/csi", Driver: "csi.x", PvName: "pv", HostPath: "/staged", Device: true, Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_GOING,
			Waits: []*podsyncv1.Wait{{Kind: "volume", Object: "h", Reason: "its driver is away", Advice: "start it", Since: timestamppb.New(left.since), RetryTime: timestamppb.New(left.since.Add(time.Hour))}},
		}
		if v := got.GetPods()[1].GetVolumes()[0]; !proto.Equal(v, want) {
			t.Errorf("%v, want %v", v, want)
		}
		one, err := r.client.ListVolumes(t.Context(), &podsyncv1.ListVolumesRequest{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name})
		if err != nil || len(one.GetPods()) != 1 {
			t.Errorf("of one pod: %v, %v", one, err)
		}
	})
}
