package access

import (
	"context"
	"crypto/sha256"
	"sync"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// trust is the hash of the bundle that client certificates are verified with, as it is now:
// always the same where there is none. With another one the node may be in another cluster,
// which knows nobody of whom the one before knew.
type trust func() [sha256.Size]byte

func trustOf(ca CA) trust {
	return func() (none [sha256.Size]byte) {
		if ca == nil {
			return none
		}
		return sha256.Sum256(ca.CurrentCABundleContent())
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
