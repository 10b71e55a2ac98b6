package image

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func wantIn(namespace, image string) Request {
	r := want(image)
	r.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	return r
}

// TestOneNamespaceWhosePullsHangLeavesTurnsToOthers: a registry that never ends its
// answers holds a place for minutes, and a pod may name as many of its images as it
// likes.
func TestOneNamespaceWhosePullsHangLeavesTurnsToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		places int
		// before is asked for first, and what another namespace wants is image.
		before, image string
	}{
		"one by one":         {1, "", "a:1"},
		"a few at once":      {3, "", "a:1"},
		"an image of theirs": {1, "a:1", "a:1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, p := setup(c.places)
				ask := func(image string) {
					go func() { _, _ = p.Ensure(t.Context(), wantIn("theirs", image)) }()
					synctest.Wait()
				}
				for i := range 50 {
					ask(fmt.Sprintf("hung-%d:1", i))
				}
				if c.before != "" {
					ask(c.before)
				}
				first, all := time.Now(), []string{c.image}
				for i := range 10 {
					all = append(all, fmt.Sprintf("b-%d:1", i))
				}
				for _, image := range all {
					began := time.Now()
					if _, err := p.Ensure(t.Context(), wantIn("ours", image)); err != nil || time.Since(began) > slowPull+time.Minute {
						t.Errorf("image %s came after %v, %v", image, time.Since(began), err)
					}
				}
				// The more of theirs hang, the sooner they make room.
				if took := time.Since(first); took > 4*slowPull {
					t.Errorf("%d images came after %v", len(all), took)
				}
			})
		})
	}
}

func TestATurnThatNobodyWaitsForIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		_, end, err := turns.take(t.Context(), turns.ask("a"))
		if err != nil {
			t.Fatal(err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() { _, _, err := turns.take(canceled, turns.ask("b")); waits <- err }()
		synctest.Wait()
		cancel()
		if err := <-waits; err == nil {
			t.Error("a place was got though one is taken")
		}
		end()
		if turns.taken != 0 || len(turns.waiting)+len(turns.under)+len(turns.served) != 0 {
			t.Errorf("%d are taken, %d wait, under way %v, served %v", turns.taken, len(turns.waiting), turns.under, turns.served)
		}
	})
}

// TestAPodOfManyImagesPullsFewAtOnceThoughPullsAreNotBounded: the kubelet pulls the
// images of a pod one after the other.
func TestAPodOfManyImagesPullsFewAtOnceThoughPullsAreNotBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(0)
		for i := range 500 {
			go func() { _, _ = p.Ensure(t.Context(), wantIn("theirs", fmt.Sprintf("a-%d:1", i))) }()
		}
		synctest.Wait()
		began := time.Now()
		if _, err := p.Ensure(t.Context(), wantIn("ours", "b:1")); err != nil || time.Since(began) > time.Second {
			t.Errorf("another namespace's image came after %v, %v", time.Since(began), err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.most > mostOfOne+1 {
			t.Errorf("%d were pulled at once", f.most)
		}
	})
}
