package firewall

import (
	"context"
	"errors"
	"fmt"
)

// The tables and chains. Their names are Kubernetes' own, and others look for
// them.
const (
	hint     = "KUBE-IPTABLES-HINT"
	firewall = "KUBE-FIREWALL"
	// canary goes with everything else when somebody flushes a table.
	canary = "KUBE-KUBELET-CANARY"

	mangle, nat, filter = "mangle", "nat", "filter"
)

// rule is a rule that must be in a chain of the filter table.
type rule struct {
	// place is -I for the beginning of the chain and -A for its end.
	place, chain string
	// spec says what it does. kube-proxy makes the same rules, so they are
	// written exactly as it writes them.
	spec []string
}

func (r rule) args(command string) []string {
	return append([]string{command, r.chain, "-t", filter}, r.spec...)
}

func (r rule) check() []string { return r.args("-C") }

// firewallRules are the rules of IPv4; IPv6 has no loopback network to route to.
func firewallRules() []rule {
	return []rule{
		{"-I", "OUTPUT", []string{"-j", firewall}},
		{"-I", "INPUT", []string{"-j", firewall}},
		{"-A", firewall, []string{
			"-m", "comment", "--comment", "block incoming localnet connections",
			"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
		}},
	}
}

// family is iptables of IPv4 or of IPv6.
type family struct {
	program string
	rules   []rule
	run     Runner
	// whole is whether everything was there after the last look.
	whole bool
}

// intact looks at the little that a flush takes away. All of it is not looked at
// each time: some iptables read whole tables for each question.
func (f *family) intact(ctx context.Context) bool {
	if !f.exists(ctx, mangle, canary) {
		return false
	}
	for _, r := range f.rules {
		if f.run(ctx, f.program, r.check()...) != nil {
			return false
		}
	}
	return true
}

// present says whether the program and the kernel know this family.
func (f *family) present(ctx context.Context) error {
	if err := f.run(ctx, f.program, "-S", "POSTROUTING", "-t", nat); err != nil {
		return fmt.Errorf("%s: %w", f.program, err)
	}
	return nil
}

// ensure makes what is missing, and says whether something was.
func (f *family) ensure(ctx context.Context) (made bool, err error) {
	chains := []struct{ table, chain string }{{mangle, hint}}
	if len(f.rules) > 0 {
		chains = append(chains, struct{ table, chain string }{filter, firewall})
	}
	for _, table := range []string{mangle, nat, filter} {
		chains = append(chains, struct{ table, chain string }{table, canary})
	}
	for _, c := range chains {
		changed, err := f.chain(ctx, c.table, c.chain)
		made = made || changed
		if err != nil {
			return made, err
		}
	}
	for _, r := range f.rules {
		changed, err := f.rule(ctx, r)
		made = made || changed
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

func (f *family) chain(ctx context.Context, table, chain string) (made bool, err error) {
	if f.exists(ctx, table, chain) {
		return false, nil
	}
	if err := f.run(ctx, f.program, "-N", chain, "-t", table); err != nil && !f.exists(ctx, table, chain) {
		return false, fmt.Errorf("make chain %s of table %s with %s: %w", chain, table, f.program, err)
	}
	return true, nil
}

func (f *family) exists(ctx context.Context, table, chain string) bool {
	return f.run(ctx, f.program, "-S", chain, "-t", table) == nil
}

func (f *family) rule(ctx context.Context, r rule) (made bool, err error) {
	err = f.run(ctx, f.program, r.check()...)
	var failed *exitError
	switch {
	case err == nil:
		return false, nil
	case !errors.As(err, &failed) || failed.status != notFound:
		return false, fmt.Errorf("look for a rule in chain %s with %s: %w", r.chain, f.program, err)
	}
	if err := f.run(ctx, f.program, r.args(r.place)...); err != nil {
		return false, fmt.Errorf("add a rule to chain %s with %s: %w", r.chain, f.program, err)
	}
	return true, nil
}
