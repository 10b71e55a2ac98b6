package notice

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// ears keep all that is said.
type ears struct {
	heard   []string
	renewed []types.UID
	sent    status.Trouble
	stale   source.Stale
	volumes []podstate.StaleVolume
}

func (e *ears) Pod(pod *v1.Pod, _, reason, message string) {
	e.heard = append(e.heard, pod.Name+" "+reason+" "+message)
}

func (e *ears) Container(pod *v1.Pod, container, _, reason, message string) {
	e.heard = append(e.heard, pod.Name+"/"+container+" "+reason+" "+message)
}

func (e *ears) Node(_, reason, message string) { e.heard = append(e.heard, reason+" "+message) }
func (e *ears) Renew(static types.UID)         { e.renewed = append(e.renewed, static) }

func (e *ears) Set(name string, ready bool, message string) {
	e.heard = append(e.heard, fmt.Sprintf("%s %v %s", name, ready, message))
}

func (e *ears) Trouble(types.UID) (status.Trouble, bool) { return e.sent, e.sent.Err != nil }
func (e *ears) Stale(types.UID) (source.Stale, bool)     { return e.stale, e.stale.Err != nil }

func (e *ears) Of(types.UID) []podstate.StaleVolume { return e.volumes }

func notices() (Notices, *ears) {
	e := &ears{}
	return Notices{Events: e, Lines: timeline.NewBook(), Mirrors: e, Health: e}, e
}

func TestAMirrorThatCannotShowAPodThatBeganAnewIsReplaced(t *testing.T) {
	n, e := notices()
	n.Lines.Open("u")
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", field.ErrorList{
		field.Forbidden(field.NewPath("status"), "may not be transitioned to non-terminated state"),
	})
	n.Refused("u", errors.New("no route to host"))
	if len(e.renewed) != 0 {
		t.Error("a mirror was replaced though nobody answered")
	}
	n.Refused("u", invalid)
	if !slices.Equal(e.renewed, []types.UID{"u"}) {
		t.Errorf("replaced %v", e.renewed)
	}
	line, _ := n.Lines.Read("u")
	if len(line.Entries) != 2 || line.Entries[0].Error != "no route to host" {
		t.Errorf("the timeline has %+v", line.Entries)
	}
}

func TestTheOwnerOfAPodHearsWhichPartOfItsStatusIsRefused(t *testing.T) {
	n, e := notices()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	n.Withheld(pod, status.Refusal{Why: "too long"})
	r := status.Refusal{Why: "too long"}
	r.Container = "c"
	n.Withheld(pod, r)
	static := pod.DeepCopy()
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	n.Withheld(static, r)
	if len(e.heard) != 2 || !strings.HasPrefix(e.heard[0], "p StatusRefused ") || !strings.HasPrefix(e.heard[1], "p/c StatusRefused ") {
		t.Errorf("heard %q", e.heard)
	}
}

func TestOfManyPodsInDoubtTenAreNamedAndTheOthersCounted(t *testing.T) {
	n, e := notices()
	var pods []string
	for i := range 12 {
		pods = append(pods, fmt.Sprintf("ns/p%d", i))
	}
	n.InDoubt(pods)
	n.InDoubt(nil)
	if len(e.heard) != 3 || !strings.Contains(e.heard[0], "ns/p9 and 2 more") || strings.Contains(e.heard[0], "ns/p10") || e.heard[2] != "static pods in doubt true " {
		t.Errorf("heard %q", e.heard)
	}
}

func TestAFailedProbeStandsInTheEventsAndTheTimeline(t *testing.T) {
	n, e := notices()
	n.Lines.Open("u")
	Probes{n}.Container(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}, "c", v1.EventTypeWarning, "Unhealthy", "no answer")
	line, _ := n.Lines.Read("u")
	if len(e.heard) != 1 || len(line.Entries) != 1 || line.Entries[0].Object != "c" || line.Entries[0].Detail != "no answer" {
		t.Errorf("heard %q, timeline %+v", e.heard, line.Entries)
	}
}

func TestAVolumeThatIsNotUpToDateIsTrouble(t *testing.T) {
	e := &ears{volumes: []podstate.StaleVolume{{Volume: "v", Why: "not found"}}}
	if got := (Troubles{Statuses: e, Sources: e, Volumes: e}).Of("u"); got == nil || !slices.Equal(got.Volumes, e.volumes) {
		t.Errorf("it is %+v", got)
	}
}

func TestTroubleIsWhatTheApiserverLacksAndWhichManifestIsOld(t *testing.T) {
	e := &ears{}
	of := Troubles{Statuses: e, Sources: e, Volumes: e}.Of
	if got := of("u"); got != nil {
		t.Errorf("without trouble it is %+v", got)
	}
	e.sent.Err, e.sent.Away = errors.New("no route to host"), true
	e.stale.Err = errors.New("a.yaml: no name")
	if got := of("u"); got == nil || got.Message != "no route to host" || !got.Away || got.Manifest != "a.yaml: no name" {
		t.Errorf("it is %+v", got)
	}
}
