// Package identity tells when one of the node's certificates is not valid, or soon is
// not: the apiserver says no more than "Unauthorized" then. It must never decide
// anything.
package identity

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// lookAgain is how often a certificate is looked at: it may have been renewed,
// and the clock may have been set.
const lookAgain = 10 * time.Second

// lastPart is which part of a certificate's life is its end, of which is warned: the
// nodes that renew theirs have done so before.
const lastPart = 10

// warnAgain is between two warnings.
const warnAgain = 24 * time.Hour

// Certificate is one of the node's.
type Certificate struct {
	// Name is that of the dependency.
	Name string
	// Text is what it is, in a sentence.
	Text string
	// Refused says what becomes of the node while it is not valid.
	Refused string
	// Renewed says what renews it, or should.
	Renewed string
	// Amiss says what else keeps it from being of use; nil, and empty, is nothing.
	Amiss func() string
	// Ended is called when it is not valid any more, at its end or since the clock was
	// set; nil calls nothing.
	Ended func()
	// Valid says from when to when it is; both zero when there is none, of which
	// nothing is told.
	Valid func() (begin, end time.Time)
}

// Watch tells health about a certificate until ctx is done; nil then. Of one that ends
// soon, or has ended, an event is sent.
func Watch(ctx context.Context, c Certificate, h health.Reporter, send func(context.Context, node.Event)) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	var warned warning
	for bad, ended := false, false; ; {
		begin, end := c.Valid()
		now := time.Now()
		wrong, amiss := c.wrong(begin, end, now), c.amiss()
		why := cmp.Or(wrong, amiss)
		if why != "" || bad {
			h.Set(c.Name, why == "", why)
		}
		if wrong != "" && !ended && c.Ended != nil {
			c.Ended()
		}
		bad, ended = why != "", wrong != ""
		event := c.warn(begin, end, now)
		if amiss != "" && event.Reason != "CertificateExpired" {
			event = node.Event{Type: "Warning", Reason: "CertificateNotUsable", Message: amiss}
		}
		if warned.due(event.Reason, end, now) {
			send(ctx, event)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c Certificate) amiss() string {
	if c.Amiss == nil {
		return ""
	}
	return c.Amiss()
}

// warning is the last that was sent.
type warning struct {
	reason  string
	end, at time.Time
}

// due says whether one is to be sent, and takes it as sent then.
func (w *warning) due(reason string, end, now time.Time) bool {
	if reason == "" || reason == w.reason && end.Equal(w.end) && now.Sub(w.at).Abs() < warnAgain {
		return false
	}
	*w = warning{reason, end, now}
	return true
}

// warn is the event about a certificate; without a reason there is none.
func (c Certificate) warn(begin, end, now time.Time) node.Event {
	left := end.Sub(now)
	switch {
	case end.IsZero() || left >= end.Sub(begin)/lastPart:
		return node.Event{}
	case left < 0:
		return node.Event{Type: "Warning", Reason: "CertificateExpired", Message: c.wrong(begin, end, now)}
	}
	return node.Event{Type: "Warning", Reason: "CertificateExpiresSoon", Message: fmt.Sprintf("%s ends at %s, in %s: %s",
		c.Text, end.UTC().Format(time.RFC3339), left.Round(time.Second), c.Renewed)}
}

// wrong says what is the matter with a certificate, and what to do.
func (c Certificate) wrong(begin, end, now time.Time) string {
	switch {
	case end.IsZero():
		return ""
	case now.After(end):
		return fmt.Sprintf("%s ended at %s, and this machine's clock says %s: %s: check the clock; %s",
			c.Text, end.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), c.Refused, c.Renewed)
	case now.Before(begin):
		return fmt.Sprintf("%s begins at %s, and this machine's clock says %s: %s once its clock says so too: set this machine's clock",
			c.Text, begin.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), c.Refused)
	}
	return ""
}
