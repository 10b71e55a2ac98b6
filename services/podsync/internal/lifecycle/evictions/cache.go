package evictions

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstBackoff, longestBackoff and forgetting are those of a container that crashes.
	firstBackoff   = 10 * time.Second
	longestBackoff = 5 * time.Minute
	forgetting     = 10 * time.Minute
	// free is how many pods of a controller are evicted before the next one waits.
	free = 2
	// mostKept is how many evictions are kept of a controller.
	mostKept = 256
)

// Cache keeps evictions. The zero value is empty. Not safe for concurrent use.
type Cache struct {
	by map[Controller][]Eviction
	// let are the pods that were let go last.
	let map[Controller]let
	// short are the conditions that were told last.
	short Short
}

// let is a pod that had to wait and was let go.
type let struct {
	pod types.UID
	at  time.Time
}

// Add keeps an eviction that is told at now, and says whether it is news.
func (c *Cache) Add(e Eviction, now time.Time) bool {
	age := max(0, now.Sub(e.End)) // A clock may have been set back.
	if age >= forgetting || slices.ContainsFunc(c.by[e.Controller], func(o Eviction) bool { return o.Pod == e.Pod }) {
		return false
	}
	e.End = now.Add(-age) // On the clock of now, which nobody sets.
	c.forget(func(o Eviction) bool { return now.Sub(o.End) >= forgetting*2 })
	list := append(c.by[e.Controller], e)
	slices.SortStableFunc(list, func(a, o Eviction) int { return a.End.Compare(o.End) })
	if c.by == nil {
		c.by = map[Controller][]Eviction{}
	}
	c.by[e.Controller] = list[max(0, len(list)-mostKept):]
	return true
}

// Told takes in what the node is short of: what it was short of and is not any more has
// no evictions.
func (c *Cache) Told(short Short) {
	if short == nil {
		return
	}
	over := c.short
	c.short = maps.Clone(short)
	c.forget(func(e Eviction) bool {
		_, was := over[e.Condition]
		_, is := short[e.Condition]
		return was && !is
	})
}

// forget drops evictions.
func (c *Cache) forget(which func(Eviction) bool) {
	for whose, list := range c.by {
		if list = slices.DeleteFunc(list, which); len(list) > 0 {
			c.by[whose] = list
			continue
		}
		delete(c.by, whose)
		delete(c.let, whose)
	}
}

// Backoff is for how long no new pod of a controller starts, and why.
type Backoff struct {
	// Until is when it is over.
	Until time.Time
	// Controller has had as many pods evicted, because the node was low on Resources; it
	// has the Conditions still, or, not Known, may have them.
	Controller            string
	Evicted               int
	Resources, Conditions []string
	Known                 bool
}

// Of says whether a new pod has to wait at now, while the node is short of something or
// may be.
func (c *Cache) Of(pod *v1.Pod, short Short, now time.Time) (Backoff, bool) {
	if !Concerns(pod) || short != nil && len(short) == 0 {
		return Backoff{}, false
	}
	var counts []Eviction
	for _, e := range c.by[controllerOf(pod)] {
		since, is := short[e.Condition]
		switch {
		case !is && short != nil, !e.Witnessed && e.End.Before(since.Add(-time.Second)): // It was of another shortage, as far as whole seconds tell.
		case len(counts) > 0 && e.End.Sub(counts[len(counts)-1].End) >= forgetting:
			counts = []Eviction{e}
		default:
			counts = append(counts, e)
		}
	}
	if len(counts) < free {
		return Backoff{}, false
	}
	last := counts[len(counts)-1]
	out := Backoff{Until: last.End.Add(backoff(len(counts))), Controller: last.Name, Evicted: len(counts), Known: short != nil}
	for _, e := range counts {
		out.Resources, out.Conditions = append(out.Resources, e.Resource), append(out.Conditions, string(e.Condition))
	}
	out.Resources, out.Conditions = distinct(out.Resources), distinct(out.Conditions)
	return out, now.Before(out.Until)
}

// Turn is Of, and lets those that have waited go one at a time: the next one after as long
// as the first one had to wait, for if that is evicted, too, they all wait longer. After
// forgetting without an eviction they all may go.
func (c *Cache) Turn(pod *v1.Pod, short Short, now time.Time) (Backoff, bool) {
	b, waits := c.Of(pod, short, now)
	if waits || b.Evicted == 0 {
		return b, waits
	}
	whose := controllerOf(pod)
	last, any := c.let[whose]
	forgotten := b.Until.Add(forgetting - backoff(b.Evicted))
	if any && last.pod == pod.UID || !now.Before(forgotten) {
		return b, false
	}
	if next := last.at.Add(backoff(b.Evicted)); any && now.Before(next) {
		b.Until = next
		if forgotten.Before(next) {
			b.Until = forgotten
		}
		return b, true
	}
	if c.let == nil {
		c.let = map[Controller]let{}
	}
	c.let[whose] = let{pod.UID, now}
	return b, false
}

// backoff is how long the next pod waits after as many evictions.
func backoff(evicted int) time.Duration {
	d := firstBackoff
	for i := free; i < evicted && d < longestBackoff; i++ {
		d *= 2
	}
	return min(d, longestBackoff)
}

func distinct(list []string) []string {
	slices.SortFunc(list, cmp.Compare[string])
	return slices.Compact(list)
}

// Reason says why the pod waits.
func (b *Backoff) Reason() string {
	still := "and still has"
	if !b.Known {
		still = "and it is not known yet whether it still has"
	}
	return fmt.Sprintf("the node evicted %d pods of %s because it was low on %s, %s %s",
		b.Evicted, b.Controller, strings.Join(b.Resources, " and "), still, strings.Join(b.Conditions, " and "))
}

// Event says it with how long that is at least.
func (b *Backoff) Event(now time.Time) string {
	return fmt.Sprintf("Back-off starting pod for %s: %s. Its pods start one at a time when that is over.",
		b.Until.Sub(now).Round(time.Second), b.Reason())
}
