package access

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stern is a Reviewer to whom no token is anybody's.
type stern struct {
	judge
	asked *int
}

func (s *stern) ReviewToken(context.Context, *authnv1.TokenReview) (*authnv1.TokenReview, *metav1.Status, error) {
	*s.asked++
	return &authnv1.TokenReview{Status: authnv1.TokenReviewStatus{Error: "invalid bearer token"}}, nil, nil
}

func TestATokenThatIsNobodysIsAskedAboutOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := &placed{refused: &refusedTokens{}, Reviewer: &stern{asked: &asked}}
		token := newTokens(Config{Begin: anyNumber}, p, p.refused, trustOf(Config{}, nil))
		for range 100 {
			if _, ok, err := token.AuthenticateToken(t.Context(), "invented"); ok || errors.Is(err, errTooMany) {
				t.Fatalf("it is let in %v, %v", ok, err)
			}
			time.Sleep(time.Second)
		}
		if want := int(100 * time.Second / refusedFor); asked < want-1 || asked > want+1 {
			t.Errorf("in 100 s the apiserver was asked %d times, want %d", asked, want)
		}
		for i := range 2 * mostRefused {
			p.refused.note(strconv.Itoa(i), "")
		}
		if len(p.refused.of) > mostRefused {
			t.Errorf("%d are remembered", len(p.refused.of))
		}
	})
}

// failing is a Reviewer whose answers are those of an apiserver that cannot look up whose a
// token is, for a while.
type failing struct {
	judge
	asked int
	until time.Time
}

func (f *failing) ReviewToken(context.Context, *authnv1.TokenReview) (*authnv1.TokenReview, *metav1.Status, error) {
	f.asked++
	if time.Now().Before(f.until) {
		return &authnv1.TokenReview{Status: authnv1.TokenReviewStatus{Error: "[invalid bearer token, context deadline exceeded]"}}, nil, nil
	}
	return &authnv1.TokenReview{Status: authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{Username: "scraper"}}}, nil, nil
}

// TestAFailureThatPassesIsNotTakenForARefusal: the apiserver says of a token that is good
// that it is not, for a moment.
func TestAFailureThatPassesIsNotTakenForARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{until: time.Now().Add(time.Second)}
		p := &placed{refused: &refusedTokens{}, Reviewer: f}
		token := newTokens(Config{Begin: anyNumber}, p, p.refused, trustOf(Config{}, nil))
		if _, ok, _ := token.AuthenticateToken(t.Context(), "good"); ok {
			t.Fatal("it is let in though the apiserver did not say whose it is")
		}
		time.Sleep(failedFor)
		if _, ok, err := token.AuthenticateToken(t.Context(), "good"); !ok || err != nil {
			t.Errorf("%s after the failure: %v, %v", failedFor, ok, err)
		}
	})
}

// TestATokenThatWasGoodAndHasExpiredIsAskedAboutNowAndThenOnly: what was good before waits
// for nobody, and who has such tokens may show them as often as they like.
func TestATokenThatWasGoodAndHasExpiredIsAskedAboutNowAndThenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{}
		p := &placed{refused: &refusedTokens{}, Reviewer: f}
		token := newTokens(Config{Begin: anyNumber, TokenTTL: time.Second}, p, p.refused, trustOf(Config{}, nil))
		const tokens = 48
		show := func() {
			for i := range tokens {
				_, _, _ = token.AuthenticateToken(t.Context(), "expires "+strconv.Itoa(i))
			}
		}
		show()
		time.Sleep(2 * time.Second)
		f.until, f.asked = time.Now().Add(time.Hour), 0
		begin := time.Now()
		for range 8 {
			show()
			time.Sleep(failedFor)
		}
		if most := tokens + burstOfOne + int(time.Since(begin).Seconds()*rateOfOne) + 1; f.asked > most {
			t.Errorf("in %s the apiserver was asked %d times about %d tokens that have expired, at most it should %d", time.Since(begin), f.asked, tokens, most)
		}
	})
}
