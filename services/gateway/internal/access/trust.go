package access

import (
	"context"
	"crypto/sha256"
	"sync"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// cluster is of which cluster what is kept was said, as far as is known here: it has the hash
// of the bundle that client certificates are verified with, none where there is none, and the
// run of who asks the apiserver. With another bundle the node may join another cluster, which
// knows nobody of whom the one before knew, and with the next run it may be there.
type cluster struct {
	bundle [sha256.Size]byte
	run    uint64
}

// trust says which one it is now.
type trust func() cluster

func trustOf(cfg Config, ca CA) trust {
	return func() (now cluster) {
		if ca != nil {
			now.bundle = sha256.Sum256(ca.CurrentCABundleContent())
		}
		if cfg.Runs != nil {
			now.run = cfg.Runs()
		}
		return now
	}
}

// underTrust has each token asked for of what fresh has made under the trust of now: what
// that keeps is forgotten with the next.
func underTrust(now trust, fresh func() authenticator.Token) authenticator.Token {
	var mu sync.Mutex
	under, kept := now(), fresh()
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		is := now() // a disk may be slow
		mu.Lock()
		if is != under {
			under, kept = is, fresh()
		}
		asked := kept
		mu.Unlock()
		return asked.AuthenticateToken(ctx, token)
	})
}
