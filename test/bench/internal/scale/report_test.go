package scale

import (
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/rounds"
)

func TestTheScaleReportComparesColumnsThatDifferByTheAgentOnly(t *testing.T) {
	r := report.New()
	for name, rate := range map[string]float64{"kubelet, limits raised": 10, "polylet, limits raised": 42, "polylet, limits default": 20} {
		r.Column(name).Add(rowStartRate, rate)
	}
	text := table(Settings{Config: rounds.Config{Rounds: 1}, Pods: 500, Trouble: "-delay=2s"}, r, time.Unix(0, 0))
	if !strings.Contains(text, "share, limits raised |") || strings.Contains(text, "share, limits default |") {
		t.Errorf("the shares are not those of the pairs:\n%s", text)
	}
	if !strings.Contains(text, "| 4.20 | ≥ 4 |") || !strings.Contains(text, "-delay=2s") {
		t.Errorf("share, wanted value or the runtime's flags are missing:\n%s", text)
	}
}

func TestLimitsThatDoNotExistAreRefused(t *testing.T) {
	if got, err := limitsOf("raised,default"); err != nil || len(got) != 2 || got[0].qps == 0 || got[1].qps != 0 {
		t.Errorf("raised,default: %+v, %v", got, err)
	}
	if _, err := limitsOf("none"); err == nil {
		t.Error("none was accepted")
	}
}

func TestTheMedianOfTwoRoundsLiesBetweenThemAndBothAreShown(t *testing.T) {
	r := report.New()
	r.Column("polylet, limits raised").Add(rowPSS, 100)
	r.Column("polylet, limits raised").Add(rowPSS, 120)
	if text := table(Settings{Config: rounds.Config{Rounds: 2}, Pods: 500}, r, time.Unix(0, 0)); !strings.Contains(text, "| 110 (100, 120) |") {
		t.Errorf("want 110 (100, 120):\n%s", text)
	}
}
