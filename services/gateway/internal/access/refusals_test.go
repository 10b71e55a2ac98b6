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
	return r.showOn(ctx, address+":1", text)
}

// showOn shows it on a connection from host:port.
func (r *reviewed) showOn(ctx context.Context, connection, text string) error {
	_, _, err := r.token.AuthenticateToken(context.WithValue(ctx, addressKey{}, connection), text)
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

func TestAnUnknownClientsInventedTokensAreAskedAboutNowAndThenOnly(t *testing.T) {
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

func TestUnknownClientsOfManyAddressesHaveTheApiserverAskedLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed()
		end := r.flood(t, 100)
		time.Sleep(20 * time.Second)
		if asked, most := r.asked.Load(), int64(burstOfUnknown+20*rateOfUnknown+1); asked > most || asked < most/2 {
			t.Errorf("in 20 s the apiserver was asked %d times, at most it should %d", asked, most)
		}
		end()
	})
}

// TestUnknownClientsOfManyAddressesKeepNoNewTokenOut: a few pods spend what all unknown
// clients may ask, for as long as they like, and who comes meanwhile has a token that the
// gateway does not know: a new scraper, or one whose token was rotated.
func TestUnknownClientsOfManyAddressesKeepNoNewTokenOut(t *testing.T) {
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

// invent shows so many invented tokens a second, the nth on the connection that from names,
// until end is called.
func (r *reviewed) invent(t *testing.T, aSecond int, from func(n int) (connection string)) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			group.Go(func() { _ = r.showOn(ctx, from(i), "invented "+strconv.Itoa(i)) })
			time.Sleep(time.Second / time.Duration(aSecond))
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

// TestWhoSharesAnAddressWithOneWhoInventsTokensComesIn: pods behind one router have one
// address, those of a node one IPv6 network. Who has a new token comes with a new connection.
func TestWhoSharesAnAddressWithOneWhoInventsTokensComesIn(t *testing.T) {
	for name, c := range map[string]struct {
		flood func(n int) string
		comes string
	}{
		"on connections that stay":               {func(n int) string { return fmt.Sprintf("10.1.0.1:%d", 1+n%16) }, "10.1.0.1:%d"},
		"of another machine of the network":      {func(n int) string { return fmt.Sprintf("[2001:db8::1]:%d", 1+n%30000) }, "[2001:db8::2]:%d"},
		"from a few addresses":                   {func(n int) string { return fmt.Sprintf("10.1.0.%d:%d", 1+n%3, 1+n%16) }, "10.1.0.1:%d"},
		"of a network, on connections that stay": {func(n int) string { return fmt.Sprintf("[2001:db8::%x]:1", 1+n%200) }, "[2001:db8::ffff]:%d"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newReviewed()
			end := r.invent(t, 300, c.flood)
			defer end()
			time.Sleep(10 * time.Second)
			for i := range 10 {
				begin := time.Now()
				if err := r.showOn(t.Context(), fmt.Sprintf(c.comes, 50000+i), "good "+strconv.Itoa(i)); err != nil || time.Since(begin) > time.Second {
					t.Errorf("%s: token %d: %v after %s", name, i, err, time.Since(begin))
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// TestWhoIsNoOtherThanOneWhoInventsTokensComesInByChance: whoever invents them makes a new
// connection for each, from the address of one who comes once a second.
func TestWhoIsNoOtherThanOneWhoInventsTokensComesInByChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed()
		end := r.invent(t, 100, func(n int) string { return fmt.Sprintf("10.1.0.1:%d", 1+n%30000) })
		defer end()
		time.Sleep(10 * time.Second)
		asked, begin := r.asked.Load(), time.Now()
		in := 0
		const times = 40
		for i := range times {
			if r.showOn(t.Context(), fmt.Sprintf("10.1.0.1:%d", 50000+i), "good "+strconv.Itoa(i)) == nil {
				in++
			}
			time.Sleep(time.Second)
		}
		if in < 2 {
			t.Errorf("of %d times it came in %d times", times, in)
		}
		if n, most := r.asked.Load()-asked, int64(time.Since(begin).Seconds()*rateOfUnknown)+times+1; n > most {
			t.Errorf("the apiserver was asked %d times, at most it should %d", n, most)
		}
	})
}

// TestWhoHasStandingDoesNotWaitForUnknownClients: from addresses without end, each
// question is the first of its address.
func TestWhoHasStandingDoesNotWaitForUnknownClients(t *testing.T) {
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
		r.all = allowance{spent: burstOfUnknown + 1000, at: time.Now()}
		var group sync.WaitGroup
		had := atomic.Int64{}
		for a := range 2 * mostTurns {
			for range 2 * turnsOfOne {
				group.Go(func() {
					if _, ok := r.ask(t.Context(), fmt.Sprintf("10.0.%d.%d:1", a/250, a%250), unknown); ok {
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
		for i := range 3 * mostSources {
			if r.noteLocked(now, "machine "+strconv.Itoa(i), strconv.Itoa(i)); len(r.sources) > mostSources+1 || r.sources[strconv.Itoa(i)] != now {
				t.Fatalf("%d machines and connections are, the last %s", len(r.sources), r.sources[strconv.Itoa(i)])
			}
		}
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
