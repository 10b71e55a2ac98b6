package fakeapiserver

import (
	"cmp"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Fault is what goes wrong with one request. The zero Fault is none.
type Fault struct {
	// Delay comes before everything else.
	Delay time.Duration
	// Status answers this HTTP status instead of doing the request: 429, 500, 503, 410 …
	Status int
	// RetryAfter goes with Status, in whole seconds.
	RetryAfter time.Duration
	// Drop cuts the connection without an answer.
	Drop bool
	// Hang: no answer until the client gives up.
	Hang bool
	// Nonsense is answered, with status 200 and instead of doing the request, when it is
	// not nil.
	Nonsense *Nonsense
	// After: the request is done first, then Status, Drop or Hang hits (Drop when none is
	// set): the response is lost.
	After bool

	// CutAfter ends a watch after this time.
	CutAfter time.Duration
	// CutAfterEvents ends a watch after so many events.
	CutAfterEvents int
	// EventDelay holds each event of a watch back.
	EventDelay time.Duration
	// Expire answers a watch with 410 Expired, as after a compaction.
	Expire bool
}

// Nonsense is an answer that no apiserver gives.
type Nonsense struct {
	// Name says what it is, for a test.
	Name string
	// ContentType is JSON's when empty.
	ContentType, Body string
}

// AllNonsense is what proxies and broken apiservers were seen to answer with status 200.
func AllNonsense() []Nonsense {
	return []Nonsense{
		{Name: "a list without a version", Body: `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
		{Name: "an empty object", Body: `{}`},
		{Name: "a page", ContentType: "text/html", Body: "<html><body>Sign in</body></html>"},
		{Name: "a page that says it is JSON", Body: "<html><body>Sign in</body></html>"},
		{Name: "a Status", Body: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`},
		{Name: "nothing", Body: ""},
		{Name: "a list of another kind", Body: `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`},
		{Name: "an object of another kind", Body: `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"7"}}`},
	}
}

func (n Nonsense) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", cmp.Or(n.ContentType, "application/json"))
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, n.Body)
}

// Rates are probabilities between 0 and 1 per request.
type Rates struct {
	// Err: 500. TooMany: 429 with Retry-After 1. Drop, Hang: no answer. LostResponse: done,
	// but the connection is cut.
	Err, TooMany, Drop, Hang, LostResponse, Delay float64
	// MaxDelay bounds Delay and EventDelay; one second when 0.
	MaxDelay time.Duration
	// For watches: cut within MaxWatch (one minute when 0), answered 410, events late.
	CutWatch, ExpireWatch, DelayEvents float64
	MaxWatch                           time.Duration
	// Skip says which requests are never hit; nil: none.
	Skip func(Request) bool
}

// RandomFaults decides from the seed, what the request is about and how many such
// requests came before, not from the order of unrelated goroutines.
func RandomFaults(seed int64, rates Rates) func(Request) Fault {
	if rates.MaxDelay == 0 {
		rates.MaxDelay = time.Second
	}
	if rates.MaxWatch == 0 {
		rates.MaxWatch = time.Minute
	}
	return func(q Request) Fault {
		if rates.Skip != nil && rates.Skip(q) {
			return Fault{}
		}
		rng := rand.New(rand.NewPCG(uint64(seed), hash(q.key(), strconv.Itoa(q.N))))
		return rates.draw(rng, q)
	}
}

func (r Rates) draw(rng *rand.Rand, q Request) Fault {
	var f Fault
	if rng.Float64() < r.Delay {
		f.Delay = time.Duration(rng.Int64N(int64(r.MaxDelay)))
	}
	x := rng.Float64()
	hit := func(p float64) bool { x -= p; return x < 0 }
	switch {
	case hit(r.Err):
		f.Status = http.StatusInternalServerError
	case hit(r.TooMany):
		f.Status, f.RetryAfter = http.StatusTooManyRequests, time.Second
	case hit(r.Drop):
		f.Drop = true
	case hit(r.Hang):
		f.Hang = true
	case hit(r.LostResponse) && q.Verb != "watch":
		f.After = true
	}
	if q.Verb == "watch" {
		if rng.Float64() < r.CutWatch {
			f.CutAfter = time.Duration(rng.Int64N(int64(r.MaxWatch))) + 1
		}
		f.Expire = rng.Float64() < r.ExpireWatch
		if rng.Float64() < r.DelayEvents {
			f.EventDelay = time.Duration(rng.Int64N(int64(r.MaxDelay)))
		}
	}
	return f
}

func (q Request) key() string {
	return q.Verb + " " + q.Resource + "/" + q.Subresource + " " + q.Namespace + "/" + q.Name
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return h.Sum64()
}
