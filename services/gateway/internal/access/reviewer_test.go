package access

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// oracle answers TokenReviews one after the other, with nothing in the end.
type oracle struct {
	judge
	refusals []metav1.Status
	answer   *authnv1.TokenReview
	asked    []time.Time
}

func (o *oracle) ReviewToken(context.Context, *authnv1.TokenReview) (*authnv1.TokenReview, *metav1.Status, error) {
	o.asked = append(o.asked, time.Now())
	if n := len(o.asked); n <= len(o.refusals) {
		return nil, &o.refusals[n-1], nil
	}
	return o.answer, nil, nil
}

func refusal(code int32, reason metav1.StatusReason, seconds int32) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Details: &metav1.StatusDetails{RetryAfterSeconds: seconds}}
}

func TestAQuestionIsPutAgainWhileItsRefusalPasses(t *testing.T) {
	for name, c := range map[string]struct {
		refusal metav1.Status
		again   bool
		least   time.Duration
	}{
		"busy":                     {refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 0), true, 400 * time.Millisecond},
		"busy, and says how long":  {refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 3), true, 3 * time.Second},
		"its database fails":       {refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0), true, 400 * time.Millisecond},
		"it takes too long":        {refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0), true, 400 * time.Millisecond},
		"it has to be asked later": {refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 0), false, 0},
		"the node may not ask":     {refusal(http.StatusForbidden, metav1.StatusReasonForbidden, 0), false, 0},
		"a code that is none":      {refusal(200, "", 0), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &oracle{refusals: []metav1.Status{c.refusal}, answer: &authnv1.TokenReview{Status: authnv1.TokenReviewStatus{
					Authenticated: true, User: authnv1.UserInfo{Username: "scraper", UID: "7", Groups: []string{"g"}, Extra: map[string]authnv1.ExtraValue{"scopes": {"a"}}},
				}}}
				answer, ok, err := tokenReviews{reviewer: o}.AuthenticateToken(t.Context(), "t")
				if ok != c.again || (err == nil) != c.again || (len(o.asked) == 2) != c.again {
					t.Fatalf("let in %v, %v, asked %d times", ok, err, len(o.asked))
				}
				if !c.again {
					return
				}
				if waited := o.asked[1].Sub(o.asked[0]); waited < c.least || waited > c.least+time.Second {
					t.Errorf("it was left alone for %v, want about %v", waited, c.least)
				}
				if u := answer.User; u.GetName() != "scraper" || u.GetUID() != "7" || u.GetGroups()[0] != "g" || u.GetExtra()["scopes"][0] != "a" {
					t.Errorf("%+v", u)
				}
			})
		})
	}
}

func TestAnAnswerThatIsEmptyLetsNobodyIn(t *testing.T) {
	if answer, ok, err := (tokenReviews{reviewer: &oracle{}}).AuthenticateToken(t.Context(), "t"); answer != nil || ok || err == nil {
		t.Errorf("%v, %v, %v", answer, ok, err)
	}
}

func TestAQuestionIsNotPutForLongerThanItMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 3)
		began := time.Now()
		_, ok, err := tokenReviews{reviewer: &oracle{refusals: []metav1.Status{slow, slow, slow, slow}}}.AuthenticateToken(t.Context(), "t")
		if took := time.Since(began); ok || err == nil || errors.Is(err, errTooMany) || took > tokenTimeout || took < tokenTimeout-3*time.Second {
			t.Errorf("after %v: %v, %v", took, ok, err)
		}
	})
}

func TestAQuestionThatMayBePutAgainOnlyTooLateHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := &oracle{refusals: []metav1.Status{refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 3600)}}
		_, ok, err := tokenReviews{reviewer: o}.AuthenticateToken(t.Context(), "t")
		if took := time.Since(began); ok || err == nil || took != 0 || len(o.asked) != 1 {
			t.Errorf("after %v: %v, %v", took, ok, err)
		}
	})
}

func TestATokenThatIsOfNobodyByNameLetsNobodyIn(t *testing.T) {
	o := &oracle{answer: &authnv1.TokenReview{Status: authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{Groups: []string{"system:masters"}}}}}
	if answer, ok, err := (tokenReviews{reviewer: o}).AuthenticateToken(t.Context(), "t"); answer != nil || ok || err == nil {
		t.Errorf("%v, %v, %v", answer, ok, err)
	}
}

func TestAnAnswerThatIsMissingEndsNoProcess(t *testing.T) {
	p := &placed{Reviewer: &oracle{}, refused: &refusedTokens{}}
	if answer, ok, err := (tokenReviews{reviewer: p}).AuthenticateToken(t.Context(), "t"); answer != nil || ok || err == nil {
		t.Errorf("%v, %v, %v", answer, ok, err)
	}
}

// TestWhateverCodesAnApiserverSaysTheSeriesStayFew: a body says any number.
func TestWhateverCodesAnApiserverSaysTheSeriesStayFew(t *testing.T) {
	for code, want := range map[int32]string{503: "503", 100: "100", 599: "599", 0: "<error>", -1: "<error>", 600: "<error>", 1 << 30: "<error>"} {
		answer := refusal(code, "", 0)
		if got := codeOf(&answer, nil); got != want {
			t.Errorf("%d is %s", code, got)
		}
	}
}

func TestQuestionsAreCountedByTheirCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m, err := NewMetrics(r)
		if err != nil {
			t.Fatal(err)
		}
		o := &oracle{refusals: []metav1.Status{refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 0)}, answer: &authnv1.TokenReview{}}
		_, _, _ = tokenReviews{reviewer: o, count: m.tokens}.AuthenticateToken(t.Context(), "t")
		j := &judge{away: 1}
		_, authz := New(Config{Metrics: m}, j, nil)
		_, _, _ = authz.Authorize(t.Context(), wants("eve", "proxy"))
		got := map[string]float64{}
		for code, of := range map[string]*prometheus.CounterVec{"429": m.tokens.total, "201": m.tokens.total, "<error>": m.accesses.total} {
			got[code] = testutil.ToFloat64(of.WithLabelValues(code))
		}
		for code, n := range got {
			if n != 1 {
				t.Errorf("%s was counted %v times", code, n)
			}
		}
	})
}

func TestAQuestionThatHasNoPlaceIsNotCounted(t *testing.T) {
	m, err := NewMetrics(prometheus.NewPedanticRegistry())
	if err != nil {
		t.Fatal(err)
	}
	_, authz := New(Config{Metrics: m, Begin: func(string, bool) func() { return nil }}, &judge{}, nil)
	if _, _, err := authz.Authorize(t.Context(), wants("eve", "proxy")); !errors.Is(err, errTooMany) {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(m.accesses.total); n != 0 {
		t.Errorf("%d codes are counted", n)
	}
}
