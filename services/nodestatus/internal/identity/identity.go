// Package identity tells when the node's client certificate is not valid: the
// apiserver says no more than "Unauthorized" then. It must never decide anything.
package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/health"
)

// lookAgain is how often the certificate is looked at: it may have been renewed,
// and the clock may have been set.
const lookAgain = 10 * time.Second

// Watch tells health about the certificate until ctx is done; nil then. valid says
// from when to when it is; both zero when there is none, of which nothing is told.
func Watch(ctx context.Context, valid func() (begin, end time.Time), h health.Reporter) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for bad := false; ; {
		begin, end := valid()
		why := wrong(begin, end, time.Now())
		if why != "" || bad {
			h.Set("client certificate", why == "", why)
		}
		bad = why != ""
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// wrong says what is the matter with a certificate, and what to do.
func wrong(begin, end, now time.Time) string {
	const refused = "the apiserver refuses it (Unauthorized), and with it all that this node asks for"
	switch {
	case end.IsZero():
		return ""
	case now.After(end):
		return fmt.Sprintf("the client certificate of the kubeconfig ended at %s, and this machine's clock says %s: %s: check the clock; renew the certificate, or join the node to the cluster again",
			end.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), refused)
	case now.Before(begin):
		return fmt.Sprintf("the client certificate of the kubeconfig begins at %s, and this machine's clock says %s: %s once its clock says so too: set this machine's clock",
			begin.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), refused)
	}
	return ""
}
