package kubeclient

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// ErrLeft is what Run, and requests, end with when the apiserver of another cluster has
// answered. What a process has in memory is the first one's: versions of objects, which
// mean nothing in the other, and that its Node is registered. It ends, and whoever keeps
// it running starts it again.
var ErrLeft = errors.New("the node's files lead to another cluster than before")

// sendOn sends a request with a credential. The first answer says of which cluster it is;
// one of another is not for those who have asked.
func (f *Follower) sendOn(g *generation, req *http.Request) (*http.Response, error) {
	resp, err := g.send(req)
	if err != nil {
		return nil, err
	}
	g.answered(resp.StatusCode)
	if err := f.hears(g, resp.StatusCode < http.StatusMultipleChoices); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// hears notes that a credential was answered, and with what was asked for, and says why this
// process has to end: of answers that come together none is given on before it is known of
// which cluster they are. A credential that nobody answers, since its files were written
// wrongly, say, and are corrected, takes nothing from what was read before.
func (f *Follower) hears(g *generation, granted bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !granted || g.heard.Swap(true) {
		return f.left
	}
	if f.read == nil || !g.rejoined && sameCluster(f.read, g) {
		f.read = g
	} else if f.left == nil {
		f.left = fmt.Errorf("%w: to apiserver %s (%s) before, to %s (%s) now: this process ends, to begin anew with nothing of the first in memory; pods run on until the other cluster has said which of them are its own",
			ErrLeft, f.read.base.Host+f.read.base.Path, f.read.From, g.base.Host+g.base.Path, g.From)
		f.Changed()
	}
	return f.left
}

// leaves is why this process has to end; nil when it has not.
func (f *Follower) leaves() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left
}

// sameCluster says whether two credentials are for one cluster: its apiservers' certificates
// come from one authority, wherever they are and however many others are trusted beside it.
// Where only what the machine trusts is, they are where they were. Behind one server that
// keeps several apart they have a path each.
func sameCluster(a, b *generation) bool {
	if strings.Trim(a.base.Path, "/") != strings.Trim(b.base.Path, "/") {
		return false
	}
	of, others := authorities(a.Config), authorities(b.Config)
	if len(of) == 0 || len(others) == 0 {
		return a.base.Host == b.base.Host
	}
	for one := range of {
		if others[one] {
			return true
		}
	}
	return false
}

// authorities are the certificates that a configuration trusts.
func authorities(cfg *rest.Config) map[string]bool {
	out := map[string]bool{}
	for text := cfg.CAData; ; {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		out[string(block.Bytes)] = true
	}
}
