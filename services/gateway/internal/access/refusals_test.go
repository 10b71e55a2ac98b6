package access

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

func anyNumber(string, bool) func() { return func() {} }

// reviewed asks about tokens of addresses, and counts what reaches the apiserver: the
// tokens good and good-n are somebody's.
type reviewed struct {
	asked    atomic.Int64
	familiar Familiar
	token    authenticator.Token
}

type trustedKey struct{}

func newReviewed() *reviewed {
	r := &reviewed{}
	who := newAskers(Config{
		Begin: anyNumber, Familiar: &r.familiar,
		Trusted: func(ctx context.Context) bool { return ctx.Value(trustedKey{}) != nil },
	}, &refusedTokens{})
	r.token = who.around(who.within(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		r.asked.Add(1)
		return &authenticator.Response{}, strings.HasPrefix(token, "good"), nil
	})))
	return r
}

func (r *reviewed) show(ctx context.Context, address, text string) error {
	_, _, err := r.token.AuthenticateToken(context.WithValue(ctx, addressKey{}, address+":1"), text)
	return err
}

// flood has so many addresses show invented tokens, four hundred a second together, until
// end is called.
func (r *reviewed) flood(t *testing.T, addresses int) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for a := range addresses {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				group.Go(func() {
					if err := r.show(ctx, fmt.Sprintf("10.1.%d.%d", a/250, a%250), fmt.Sprintf("invented %d %d", a, i)); err != nil && !errors.Is(err, errTooMany) {
						t.Error(err)
					}
				})
				time.Sleep(time.Duration(max(20, 5*addresses/2)) * time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

func TestAStrangersInventedTokensAreAskedAboutNowAndThenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed()
		if err := r.show(t.Context(), "10.1.0.0", "good"); err != nil {
			t.Fatal(err)
		}
		end := r.flood(t, 1)
		const minutes = 1
		time.Sleep(minutes * time.Minute)
		if asked, most := r.asked.Load(), int64(1+burstOfOne+minutes*60*rateOfOne); asked > most || asked < most/2 {
			t.Errorf("in %d minutes the apiserver was asked %d times, at most it should %d", minutes, asked, most)
		}
		if err := r.show(t.Context(), "10.1.0.0", "good"); err != nil {
			t.Errorf("who was let in before, of the same address: %v", err)
		}
		for i := range 10 * burstOfOne {
			if err := r.show(t.Context(), "10.0.0.2", "good "+strconv.Itoa(i)); err != nil {
				t.Fatalf("the %d. good token of another address: %v", i, err)
			}
		}
		end()
		time.Sleep(time.Minute)
		if err := r.show(t.Context(), "10.1.0.0", "good too"); err != nil {
			t.Errorf("a new one of the same address, when the flood is over: %v", err)
		}
	})
}

func TestStrangersOfManyAddressesHaveTheApiserverAskedLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed()
		end := r.flood(t, 100)
		time.Sleep(20 * time.Second)
		if asked, most := r.asked.Load(), int64(burstOfStrangers+20*rateOfStrangers+1); asked > most || asked < most/2 {
			t.Errorf("in 20 s the apiserver was asked %d times, at most it should %d", asked, most)
		}
		end()
	})
}

// TestStrangersOfManyAddressesKeepNoNewTokenOut: a few pods spend what all strangers may
// ask, for as long as they like, and who comes meanwhile has a token that the gateway does
// not know: a new scraper, or one whose token was rotated.
func TestStrangersOfManyAddressesKeepNoNewTokenOut(t *testing.T) {
	for _, addresses := range []int{8, 100} {
		synctest.Test(t, func(t *testing.T) {
			r := newReviewed()
			end := r.flood(t, addresses)
			defer end()
			time.Sleep(10 * time.Second)
			for i := range 5 {
				begin := time.Now()
				if err := r.show(t.Context(), "10.0.0.1", "good "+strconv.Itoa(i)); err != nil || time.Since(begin) > time.Second {
					t.Errorf("beside %d addresses, token %d: %v after %s", addresses, i, err, time.Since(begin))
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// TestWhoHasStandingDoesNotWaitForStrangers: from addresses without end, each question is
// the first of its address.
func TestWhoHasStandingDoesNotWaitForStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				group.Go(func() {
					_ = r.show(ctx, fmt.Sprintf("10.%d.%d.%d", 1+i/62500, i/250%250, i%250), "invented "+strconv.Itoa(i))
				})
				time.Sleep(4 * time.Millisecond)
			}
		})
		time.Sleep(5 * time.Second)
		r.familiar.note("10.0.0.1:1")
		for name, show := range map[string]func() error{
			"a familiar address": func() error { return r.show(t.Context(), "10.0.0.1", "good familiar") },
			"a trusted connection": func() error {
				return r.show(context.WithValue(t.Context(), trustedKey{}, 1), "10.1.0.1", "good trusted")
			},
		} {
			begin := time.Now()
			if err := show(); err != nil || time.Since(begin) > 0 {
				t.Errorf("%s: %v after %s", name, err, time.Since(begin))
			}
		}
	})
}

func TestWhatIsSpentOfAnAddressIsNotThatOfItsTrustedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed()
		defer r.flood(t, 1)()
		time.Sleep(20 * time.Second)
		if err := r.show(context.WithValue(t.Context(), trustedKey{}, 1), "10.1.0.0", "good"); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingIsLeftOfTurnsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		r.all = allowance{spent: burstOfStrangers + 1000, at: time.Now()}
		var group sync.WaitGroup
		had := atomic.Int64{}
		for a := range 2 * mostTurns {
			for range 2 * turnsOfOne {
				group.Go(func() {
					if _, ok := r.ask(t.Context(), fmt.Sprintf("10.0.%d.%d:1", a/250, a%250), stranger); ok {
						had.Add(1)
					}
				})
			}
		}
		synctest.Wait()
		if len(r.waiting) != mostTurns {
			t.Errorf("%d wait", len(r.waiting))
		}
		group.Wait()
		if len(r.waiting) != 0 || had.Load() != 0 {
			t.Errorf("%d wait, %d had a turn", len(r.waiting), had.Load())
		}
		for name, one := range r.of {
			if one.turns != 0 || one.spent != 0 {
				t.Errorf("%s: %+v", name, one)
			}
		}
	})
}

func TestTheAddressesThatAreRememberedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		now := time.Now()
		for i := range 3 * mostAddresses {
			r.hostLocked(strconv.Itoa(i), now).spent = 1
		}
		if len(r.of) > mostAddresses+1 {
			t.Errorf("%d are", len(r.of))
		}
		time.Sleep(time.Minute)
		if r.hostLocked("x", time.Now()); len(r.of) > 2 {
			t.Errorf("a minute later %d are", len(r.of))
		}
	})
}
