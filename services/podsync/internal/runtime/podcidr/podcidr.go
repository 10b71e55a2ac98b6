// Package podcidr tells the runtime the network of the node's pods, for network
// plugins that take it from there.
//
// It owns what the runtime was told last. It must never choose a network: the Node
// object or the configuration names it.
package podcidr

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/wake"
)

// Runtime is told; *cri.Client has it.
type Runtime interface {
	UpdatePodCIDR(ctx context.Context, cidr string) error
}

// Deps are what a Teller is given; all must be set, and neither function may block.
type Deps struct {
	Runtime Runtime
	// Ready says whether the runtime answers.
	Ready func() bool
	// Wanted is the pods' network; empty for none.
	Wanted func() string
}

// Teller tells the runtime. Safe for concurrent use.
type Teller struct {
	deps Deps
	wake wake.Signal
}

// New returns a Teller that has told nothing.
func New(deps Deps) *Teller { return &Teller{deps: deps, wake: wake.New()} }

// Check has Run look again, since the runtime or the node has changed. It returns
// at once.
func (t *Teller) Check() { t.wake.Set() }

// Run tells the runtime each network that is wanted, until ctx is done.
func (t *Teller) Run(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	told, refused := "", ""
	for ctx.Err() == nil {
		again := false
		if cidr := t.deps.Wanted(); cidr != "" && cidr != told && t.deps.Ready() {
			if err := t.deps.Runtime.UpdatePodCIDR(ctx, cidr); err != nil {
				if cidr != refused {
					logr.FromContextOrDiscard(ctx).Error(err, "Could not tell the runtime the pod network; trying again by itself", "podCIDR", cidr)
				}
				again, refused = true, cidr
			} else {
				told, refused = cidr, ""
			}
		}
		t.wake.Wait(ctx, retry, again)
	}
	return nil
}
