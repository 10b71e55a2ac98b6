package imagegc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestOtherLimitsAreKeptToFromTheNextCollectionOn(t *testing.T) {
	for name, c := range map[string]struct {
		first, then Config
		left        int
	}{
		"lower ones":      {Config{HighPercent: 95, LowPercent: 90}, Config{HighPercent: 70, LowPercent: 50}, 5},
		"none before":     {Config{HighPercent: 100, LowPercent: 90}, Config{HighPercent: 70, LowPercent: 50}, 5},
		"none any more":   {Config{HighPercent: 95, LowPercent: 90}, Config{HighPercent: 100, LowPercent: 50}, 8},
		"an age":          {Config{HighPercent: 95, LowPercent: 90}, Config{HighPercent: 95, LowPercent: 90, MaxAge: time.Minute}, 0},
		"all left alone":  {Config{HighPercent: 95, LowPercent: 90}, Config{HighPercent: 70, LowPercent: 50, MinAge: 3 * time.Hour}, 8},
		"an age, by none": {Config{HighPercent: 100}, Config{HighPercent: 100, MaxAge: 30 * time.Minute}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, c.first, fakecri.Config{}, 8)
				time.Sleep(time.Hour + time.Second)
				if n := len(r.there()); n != len("0 1 2 3 4 5 6 7") {
					t.Fatalf("left %s before", r.there())
				}
				r.c.SetLimits(Limits{HighPercent: c.then.HighPercent, LowPercent: c.then.LowPercent, MinAge: c.then.MinAge, MaxAge: c.then.MaxAge})
				time.Sleep(5*time.Minute + time.Second)
				if got := r.there(); (len(got)+1)/2 != c.left {
					t.Errorf("left %q, want %d", got, c.left)
				}
			})
		})
	}
}

// TestImagesAreOfNoAgeWhileNobodyLooked: an age that is set where there was none is not
// counted from a time at which nobody looked which images were used.
func TestImagesAreOfNoAgeWhileNobodyLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{HighPercent: 100}, fakecri.Config{}, 2)
		time.Sleep(24 * time.Hour)
		r.c.SetLimits(Limits{HighPercent: 100, MaxAge: time.Hour})
		time.Sleep(55 * time.Minute)
		if got := r.there(); got != "0 1" {
			t.Errorf("left %q", got)
		}
		time.Sleep(20 * time.Minute)
		if got := r.there(); got != "" {
			t.Errorf("left %q when they are old", got)
		}
	})
}
