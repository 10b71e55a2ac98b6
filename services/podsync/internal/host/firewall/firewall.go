// Package firewall keeps the chains of iptables that other parts of a cluster
// expect of a node's agent, as the kubelet does with makeIPTablesUtilChains:
// KUBE-IPTABLES-HINT, by which CNI plugins and kube-proxies see which iptables is
// in use here, and KUBE-FIREWALL, which drops what comes from outside for a
// loopback address (CVE-2020-8558: with route_localnet a neighbour could reach
// what listens on 127.0.0.1). They are made again when somebody flushes them.
//
// It must never touch a chain or rule of anybody else, never remove one, and
// never keep the node from working: a machine without iptables is shown in
// health, for there may be nobody here who needs it.
//
// Source: KEP-3178, https://issue.k8s.io/90259.
package firewall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
)

const (
	// lookEvery is how often the chains are looked at: nothing tells of a flush
	// that holds for every kind of iptables.
	lookEvery = time.Minute
	// lookAgain is when they are looked at after they were made: whoever flushed
	// them may not have been through with it.
	lookAgain = 5 * time.Second
	// Dependency is the name in health.
	Dependency = "iptables"
)

// Deps is what a Keeper is given.
type Deps struct {
	// Health is told under Dependency; may be nil.
	Health health.Reporter
	// Event is told what health is told, once for each message; may be nil.
	Event func(message string)
	// Run runs one of iptables' programs; nil runs the machine's own.
	Run Runner
}

// Keeper keeps the chains of IPv4 and IPv6.
type Keeper struct {
	deps     Deps
	families []*family
	told     string // the event that was sent last
}

// New returns a Keeper; it does nothing before Run.
func New(deps Deps) *Keeper {
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Event == nil {
		deps.Event = func(string) {}
	}
	if deps.Run == nil {
		deps.Run = run
	}
	return &Keeper{deps: deps, families: []*family{
		{program: "iptables", rules: firewallRules(), run: deps.Run}, {program: "ip6tables", run: deps.Run},
	}}
}

// Run keeps the chains until ctx is done. It leaves them behind: traffic must not
// become open because the agent restarts.
func (k *Keeper) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		made, err := k.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if made {
			log.Info("Made chains of iptables that were missing: KUBE-IPTABLES-HINT, KUBE-FIREWALL")
		}
		k.report(err)
		next := lookEvery
		if made {
			next = lookAgain
		}
		timer.Reset(next)
	}
}

// look makes what is missing in both families; made says that something was.
// That the machine has one family only is no error.
func (k *Keeper) look(ctx context.Context) (made bool, err error) {
	var lacks, errs []error
	for _, f := range k.families {
		if f.whole && f.intact(ctx) {
			continue
		}
		f.whole = false
		if err := f.present(ctx); err != nil {
			lacks = append(lacks, err)
			continue
		}
		changed, err := f.ensure(ctx)
		made = made || changed
		if err != nil {
			errs = append(errs, err)
		}
		f.whole = err == nil
	}
	if len(lacks) == len(k.families) {
		errs = append(errs, fmt.Errorf("there is no iptables on this machine: %w", errors.Join(lacks...)))
	}
	return made, errors.Join(errs...)
}

// report shows in health, and as an event, what keeps the chains from being.
func (k *Keeper) report(err error) {
	if err == nil {
		k.told = ""
		k.deps.Health.Set(Dependency, true, "")
		return
	}
	message := fmt.Sprintf("the chains KUBE-FIREWALL and KUBE-IPTABLES-HINT are not kept: %v; "+
		"with route_localnet on, others reach what listens on 127.0.0.1: install iptables, or set makeIPTablesUtilChains to false when nothing here uses iptables", err)
	k.deps.Health.Set(Dependency, false, message)
	if message != k.told {
		k.told = message
		k.deps.Event(message)
	}
}
