package sim

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// spender is the shape of a job that asks for a large part of the node, and ends.
const spender = "spender"

func (m *maker) spending() {
	m.policy(v1.RestartPolicyNever, succeeds)
	c := m.main(fakecri.Sequence(m.exit(0)))
	m.cpu = int64(20 + m.rng.IntN(10))
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(m.cpu, resource.DecimalSI)}
}

// completions adds jobs that together ask for more than the node has, one after
// the other, and a pod that is bound while podsync is away: what has ended takes
// nobody's room.
func (s *scenario) completions(rng *rand.Rand) {
	grace := int64(2)
	at := time.Duration(0)
	for i := range 3 {
		sub := newPod(spender, fmt.Sprint("j", i), &grace, rng)
		s.put(sub)
		s.add(at, "create "+sub.pod.Name+" (spender)", func(w *world) { w.create(sub) })
		at += time.Duration(15+rng.IntN(15)) * time.Second
	}
	late := newPod(filler, "j9", &grace, rng)
	s.put(late)
	s.noisy = max(s.noisy, at+time.Minute)
	s.add(at, "podsync is killed, and away", func(w *world) { w.away(10 * time.Second) })
	s.add(at+time.Duration(rng.IntN(12))*time.Second, "create j9 (filler)", func(w *world) { w.create(late) })
}

// over says whether nothing of a pod takes room any more.
func (f *facts) over() bool {
	return f.gone || !f.sub.static && ended(&v1.Pod{Status: v1.PodStatus{Phase: f.phase}})
}

// hadRoom says whether there was room for a pod all the time, with all that came
// after it: what had ended before counts for nothing, nor does what is left of a pod
// whose object was taken away by force. Its end is waited for.
func (j *judge) hadRoom(sub *subject) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	mine := j.facts[sub.pod.Name]
	all := mine.others + sub.asks()
	for _, f := range j.facts {
		if f != mine && f.since.After(mine.since) {
			all += f.sub.asks()
		}
	}
	return all <= nodeCPU
}

// refused checks that the apiserver does not refuse for good what podsync writes.
// That a static pod has ended is known of its mirror only once the runtime has
// forgotten it: the refusal is how podsync learns that it needs another mirror. And
// what was on its way while another pod of the name took its pod's place is refused
// for the UID, which tells podsync that its pod is gone.
func (j *judge) refused(req *http.Request, resp *http.Response) {
	switch {
	case resp == nil || req.Method == http.MethodGet:
	case j.forgottenMirror(req.URL.Path), resp.StatusCode == http.StatusUnprocessableEntity && strings.Contains(answer(resp), "metadata.uid: Invalid value"):
	case resp.StatusCode == http.StatusUnprocessableEntity, resp.StatusCode == http.StatusBadRequest:
		j.fail("the apiserver refuses for good (%d) what podsync writes with %s %s", resp.StatusCode, req.Method, req.URL.Path)
	}
}

// forgottenMirror says whether a path is the status of a static pod's mirror that
// the runtime knew once, and was wiped.
func (j *judge) forgottenMirror(path string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid, f := range j.owners {
		if f.sub.static && j.forgotten[uid] && strings.HasSuffix(path, "/pods/"+f.sub.pod.Name+"-"+nodeName+"/status") {
			return true
		}
	}
	return false
}

// answer is what a response says; it can be read again.
func answer(resp *http.Response) string {
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return string(text)
}
