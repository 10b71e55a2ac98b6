package rows

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/bench/internal/report"
)

func TestRequestsAreCountedOnceAndWatchesWhenTheyBegin(t *testing.T) {
	log := `{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"pods"}}
{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"pods"}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"pods","subresource":"status"}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"pods","subresource":"status"}}
{"stage":"ResponseComplete","verb":"get"}
{"stage":"ResponseComp`
	got, err := countRequests(strings.NewReader(log))
	if want := map[string]float64{"watch pods": 1, "patch pods/status": 2, "get ": 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := countRequests(strings.NewReader("no JSON\n")); err == nil {
		t.Errorf("a line that is no event gave %v", got)
	}
}

func TestRuntimeCallsAreThoseOfTheCRIWhateverTheyReturned(t *testing.T) {
	metrics := `# TYPE grpc_server_handled_total counter
grpc_server_handled_total{grpc_code="OK",grpc_method="Status",grpc_service="runtime.v1.RuntimeService",grpc_type="unary"} 12
grpc_server_handled_total{grpc_code="NotFound",grpc_method="Status",grpc_service="runtime.v1.RuntimeService",grpc_type="unary"} 1
grpc_server_handled_total{grpc_code="OK",grpc_method="ListImages",grpc_service="runtime.v1.ImageService",grpc_type="unary"} 1e+06
grpc_server_handled_total{grpc_code="OK",grpc_method="List",grpc_service="containerd.services.content.v1.Content",grpc_type="unary"} 3
grpc_server_started_total{grpc_method="Status",grpc_service="runtime.v1.RuntimeService",grpc_type="unary"} 13
`
	got, err := countCalls(strings.NewReader(metrics))
	if want := map[string]float64{"Status": 13, "ListImages": 1e6}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestEveryStateOfAPodIsToldHoweverShort(t *testing.T) {
	p := &podWatch{latest: map[string]*corev1.Pod{}}
	pod := func(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	runs, up, down := p.when("a", running), p.when("a", ready), p.when("a", gone)
	at := time.Unix(100, 0)
	p.take(pod("b", corev1.PodRunning, corev1.ConditionTrue), false, at)
	p.take(pod("a", corev1.PodRunning, corev1.ConditionFalse), false, at.Add(1))
	p.take(pod("a", corev1.PodRunning, corev1.ConditionTrue), false, at.Add(2))
	p.take(pod("a", corev1.PodRunning, corev1.ConditionFalse), true, at.Add(3))
	for n, answer := range []<-chan time.Time{runs, up, down} {
		select {
		case got := <-answer:
			if want := at.Add(time.Duration(n + 1)); got != want {
				t.Errorf("question %d was answered with %v, want %v", n, got, want)
			}
		default:
			t.Errorf("question %d was not answered", n)
		}
	}
	select {
	case <-p.when("b", ready):
	default:
		t.Error("what is known is not answered")
	}
}

func TestRowsSayWhatTheFirstColumnIsOfTheSecond(t *testing.T) {
	r := report.New()
	r.Column("polylet").Add("x, ms", 50)
	r.Column("kubelet").Add("x, ms", 200)
	r.Column("kubelet").Add("only one has it", 1)
	text := table(Settings{}, r, time.Unix(100, 0))
	for _, want := range []string{"| x, ms | 50 / 50 | 200 / 200 | 0.25 / 0.25 |", "| only one has it | – | 1 / 1 | – |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
