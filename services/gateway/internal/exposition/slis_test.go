package exposition

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthChecksAreCountedAndForgottenOnDelete(t *testing.T) {
	s, err := NewSLIs()
	if err != nil {
		t.Fatal(err)
	}
	get := func(method string) string {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, "/metrics/slis", nil))
		return w.Body.String()
	}
	s.ObserveCheck("ping", true)
	s.ObserveCheck("log", true)
	s.ObserveCheck("log", false)
	body := get("GET")
	for _, want := range []string{
		"# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n# TYPE kubernetes_healthcheck gauge\n",
		`kubernetes_healthcheck{name="log",type="healthz"} 0`, `kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="log",status="error",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="log",status="success",type="healthz"} 1`,
		"process_start_time_seconds ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
	if strings.Contains(body, "process_cpu") || strings.Contains(body, "go_") {
		t.Errorf("what is at /metrics is here too:\n%s", body)
	}
	if got := get("DELETE"); got != "metrics reset\n" {
		t.Errorf("DELETE says %q", got)
	}
	if body := get("GET"); strings.Contains(body, "kubernetes_healthcheck") {
		t.Errorf("after DELETE:\n%s", body)
	}
}
