package api

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
)

func TestASeriesIsReadWithItsLabelsAndItsTime(t *testing.T) {
	s, err := parseSeries(`a_total{one="x, \"y\"}",two=""} 1.5e+09 1700000000123`)
	if err != nil || s.name != "a_total" || !maps.Equal(s.labels, map[string]string{"one": `x, "y"}`, "two": ""}) || !s.at.Equal(time.UnixMilli(1700000000123)) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseSeries("up 1"); err != nil || s.name != "up" || len(s.labels) != 0 || !s.at.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	for _, line := range []string{"", "up", `up{a="b" 1`, `up{a=b} 1`, "up 1 2 3", "up 1 then"} {
		if s, err := parseSeries(line); err == nil {
			t.Errorf("%q is read as %+v", line, s)
		}
	}
}

func TestShapesAreNamesWithoutValues(t *testing.T) {
	text, err := textShape([]byte("# HELP a b\n# TYPE a gauge\na{y=\"1\",x=\"2\"} 1\na{x=\"3\",y=\"4\"} 2\na{x=\"\"} 1\n"))
	if got := slices.Sorted(maps.Keys(text)); err != nil || !slices.Equal(got, []string{"a{x,y}", "a{}", "type a gauge"}) {
		t.Errorf("%q, %v", got, err)
	}
	json, err := jsonShape([]byte(`{"pods":[{"name":"a","cpu":{"time":1}},{"name":"b","none":null}],"node":true}`))
	if got := slices.Sorted(maps.Keys(json)); err != nil || !slices.Equal(got, []string{".node", ".pods[].cpu.time", ".pods[].name"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestADocumentThatLacksAPodIsWrong(t *testing.T) {
	const cpu = `container_cpu_usage_seconds_total{container="app",pod="a"} 1` + "\n" + `container_cpu_usage_seconds_total{container="",pod="b"} 1`
	for _, c := range []struct {
		check func([]byte, []string) error
		body  string
		pods  []string
		right bool
	}{
		{checkPods, `{"items":[{"metadata":{"name":"a"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}]}`, []string{"a"}, true},
		{checkPods, `{"items":[{"metadata":{"name":"a"},"status":{"phase":"Pending"}}]}`, []string{"a"}, false},
		{checkPods, `{"items":[]}`, []string{"a"}, false},
		{checkSummary, `{"pods":[{"podRef":{"name":"a"},"containers":[{"name":"app","cpu":{"time":null,"usageCoreNanoSeconds":1},"memory":{"time":null,"workingSetBytes":1},"rootfs":{"time":null},"logs":{"time":null}}]}]}`, []string{"a"}, true},
		{checkSummary, `{"pods":[{"podRef":{"name":"a"},"containers":[{"name":"app"}]}]}`, []string{"a"}, false},
		{checkMetrics, "kubelet_running_pods 2\n", []string{"a", "b"}, true},
		{checkMetrics, "kubelet_running_pods 1\n", []string{"a", "b"}, false},
		{checkMetrics, "up 1\n", nil, false},
		{checkCPUSeries, cpu, []string{"a"}, true},
		{checkCPUSeries, cpu, []string{"a", "b"}, false},
	} {
		if err := c.check([]byte(c.body), c.pods); (err == nil) != c.right {
			t.Errorf("%s with pods %v: %v, want right %v", c.body, c.pods, err, c.right)
		}
	}
}

func TestLinesAreNumberedAsSeqDoesIt(t *testing.T) {
	got, err := io.ReadAll(io.LimitReader(&lines{}, 9*12+3))
	if want := "00000001\n00000002\n"; err != nil || !strings.HasPrefix(string(got), want) || !strings.HasSuffix(string(got), "\n00000012\n000") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheReportOfTheAPIComparesMediansAndNamesDifferences(t *testing.T) {
	r := report.New()
	for agent, values := range map[string][]float64{"polylet": {1, 2, 9}, "kubelet": {4, 8, 8}} {
		for _, v := range values {
			r.Column(agent).Add("/pods, ms", v)
		}
		r.Column(agent).AddShape("/pods", map[string]bool{".both": true, "." + agent: true})
	}
	text := table(Settings{}, r, time.Unix(0, 0))
	for _, want := range []string{" 0.25 | ≤ 0.5 |", "/pods, only kubelet (1): `.kubelet`", "/pods, only polylet (1): `.polylet`"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
