package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// pushes adds to a share of the scenarios that others push images under the name that
// pods run, and has some of the pods ask for the newest at each start.
func (s *scenario) pushes(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 29))
	if rng.IntN(6) > 0 {
		return
	}
	for _, sub := range s.subjects {
		if rng.IntN(2) == 0 {
			asksEachTime(sub)
		}
	}
	for i := range 1 + rng.IntN(3) {
		s.add(time.Duration(rng.Int64N(int64(s.noisy))), "another image is pushed", func(w *world) { w.push(fmt.Sprint(i)) })
	}
}

// asksEachTime gives the pod's containers the pull policy Always.
func asksEachTime(sub *subject) {
	for _, list := range [][]v1.Container{sub.pod.Spec.InitContainers, sub.pod.Spec.Containers} {
		for i := range list {
			list[i].ImagePullPolicy = v1.PullAlways
		}
	}
}

// pulledIn is how long a pull of the image that pods run takes.
const pulledIn = 700 * time.Millisecond

// push has another image come to the registry.
func (w *world) push(content string) {
	img := fakecri.RemoteImage{PullDelay: pulledIn, Content: content}
	w.rt.SetImage(goodImage, img)
	w.judge.pushed(fakecri.ImageID(goodImage, img))
}

// registered is what the registry has had under a name until a time; zero: it has it still.
type registered struct {
	id    string
	until time.Time
}

func (j *judge) pushed(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.images) == 0 {
		j.images = []registered{{id: fakecri.ImageID(goodImage, fakecri.RemoteImage{})}}
	}
	j.images[len(j.images)-1].until = time.Now()
	j.images = append(j.images, registered{id: id})
}

// pulledWith is how much longer ago the pull of another pod may have begun that has got a
// container its image, too.
const pulledWith = 15 * time.Second

// newest checks that a container whose policy is Always has an image that the registry
// had at some time since it became due: since the init containers before it have ended,
// and its own last run.
func (j *judge) newest(tr fakecri.Transition, f *facts, config fakecri.ContainerInfo) {
	spec := &f.sub.pod.Spec
	c, _ := podutil.Container(&v1.Pod{Spec: *spec}, tr.Name)
	if c == nil || c.ImagePullPolicy != v1.PullAlways || config.Config.GetImage().GetUserSpecifiedImage() != goodImage {
		return
	}
	var due time.Time
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == tr.Name {
			break
		}
		if r := j.record(tr.PodUID, spec.InitContainers[i].Name); !sidecar(&spec.InitContainers[i]) && r.ended && r.sandbox == tr.SandboxID && r.endedAt.After(due) {
			due = r.endedAt
		}
	}
	if r := j.record(tr.PodUID, tr.Name); r.ended && r.endedAt.After(due) {
		due = r.endedAt
	}
	for _, img := range j.images {
		if img.id == config.Config.GetImage().GetImage() && !img.until.IsZero() && img.until.Before(due.Add(-pulledWith)) {
			j.violationLocked("container %s of pod %s runs an image that the registry has not had since %v before it was due", tr.Name, tr.Pod, due.Sub(img.until))
		}
	}
}
