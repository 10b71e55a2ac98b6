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
		client, err := clientOf(p)
		if err != nil {
			t.Fatal(err)
		}
		token, err := newTokens(Config{Begin: anyNumber}, client, p.refused)
		if err != nil {
			t.Fatal(err)
		}
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
			p.refused.note(strconv.Itoa(i))
		}
		if len(p.refused.of) > mostRefused {
			t.Errorf("%d are remembered", len(p.refused.of))
		}
	})
}
