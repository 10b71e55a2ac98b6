package access

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// reviewed asks about tokens of addresses, and counts what reaches the apiserver: the
// tokens good and good-n are somebody's.
func reviewed(asked *int) func(t *testing.T, address, token string) error {
	who := newAskers(func(string, bool) func() { return func() {} }, &refusedTokens{})
	token := who.around(who.within(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		*asked++
		return &authenticator.Response{}, len(token) >= 4 && token[:4] == "good", nil
	})))
	return func(t *testing.T, address, text string) error {
		_, _, err := token.AuthenticateToken(context.WithValue(t.Context(), addressKey{}, address+":1"), text)
		return err
	}
}

func TestAStrangersInventedTokensAreAskedAboutNowAndThenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		show := reviewed(&asked)
		if err := show(t, "10.0.0.1", "good"); err != nil {
			t.Fatal(err)
		}
		const minutes = 10
		for i := range minutes * 6000 {
			if err := show(t, "10.0.0.1", "invented "+strconv.Itoa(i)); err != nil && !errors.Is(err, errTooMany) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := 1 + burstOfOne + minutes*60*rateOfOne; asked > most || asked < most/2 {
			t.Errorf("in %d minutes the apiserver was asked %d times, at most it should %d", minutes, asked, most)
		}
		if err := show(t, "10.0.0.1", "good"); err != nil {
			t.Errorf("who was let in before, of the same address: %v", err)
		}
		for i := range 10 * burstOfOne {
			if err := show(t, "10.0.0.2", "good "+strconv.Itoa(i)); err != nil {
				t.Fatalf("the %d. good token of another address: %v", i, err)
			}
		}
		time.Sleep(time.Minute)
		if err := show(t, "10.0.0.1", "good too"); err != nil {
			t.Errorf("a new one of the same address, when the flood is over: %v", err)
		}
	})
}

func TestStrangersOfManyAddressesHaveTheApiserverAskedLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		show := reviewed(&asked)
		for second := range 60 {
			for i := range 1000 {
				if err := show(t, fmt.Sprintf("10.%d.%d.%d", second, i/250, i%250), "invented"+strconv.Itoa(i)); err != nil && !errors.Is(err, errTooMany) {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		if most := burstOfAll + 60*rateOfAll; asked > most || asked < most/2 {
			t.Errorf("in a minute the apiserver was asked %d times, at most it should %d", asked, most)
		}
	})
}

func TestTheAddressesThatAreRememberedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		now := time.Now()
		for i := range 3 * mostAddresses {
			r.host(strconv.Itoa(i), now).spent = 1
		}
		if len(r.of) > mostAddresses+1 {
			t.Errorf("%d are", len(r.of))
		}
		time.Sleep(time.Minute)
		if r.host("x", time.Now()); len(r.of) > 2 {
			t.Errorf("a minute later %d are", len(r.of))
		}
	})
}

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
		token, err := newTokens(Config{Begin: func(string, bool) func() { return func() {} }}, client, p.refused)
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
