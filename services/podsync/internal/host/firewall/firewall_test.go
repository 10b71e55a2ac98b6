package firewall

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
)

// tables is a machine's iptables: chains with their rules, by program and table.
type tables struct {
	mu     sync.Mutex
	chains map[string][]string
	lacks  map[string]error // by program
	refuse error            // of every change
	calls  int
}

func newTables() *tables {
	m := &tables{chains: map[string][]string{}, lacks: map[string]error{}}
	m.flush()
	return m
}

func (m *tables) flush() {
	clear(m.chains)
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, chain := range []string{"filter INPUT", "filter OUTPUT", "nat POSTROUTING"} {
			m.chains[program+" "+chain] = nil
		}
	}
}

// change is what somebody else does to them while a Keeper runs.
func (m *tables) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *tables) run(_ context.Context, program string, args ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if err := m.lacks[program]; err != nil {
		return err
	}
	command, chain, table, spec := args[0], args[1], args[3], strings.Join(args[4:], " ")
	name := program + " " + table + " " + chain
	rules, there := m.chains[name]
	if slices.Contains([]string{"-N", "-I", "-A"}, command) && m.refuse != nil {
		return m.refuse
	}
	switch {
	case command == "-N" && there, command != "-N" && !there, command == "-C" && !slices.Contains(rules, spec):
		return &exitError{1, "no"}
	case command == "-N":
		m.chains[name] = nil
	case command == "-I":
		m.chains[name] = append([]string{spec}, rules...)
	case command == "-A":
		m.chains[name] = append(rules, spec)
	}
	return nil
}

// count is how many programs have run.
func (m *tables) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// rules is what a chain has; there is false when it is not there.
func (m *tables) rules(chain string) (rules []string, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rules, there = m.chains[chain]
	return slices.Clone(rules), there
}

func (m *tables) whole(t *testing.T) {
	t.Helper()
	drop := "-m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
	for chain, want := range map[string]string{"INPUT": "-j KUBE-FIREWALL", "OUTPUT": "-j KUBE-FIREWALL", "KUBE-FIREWALL": drop} {
		if got, _ := m.rules("iptables filter " + chain); !slices.Equal(got, []string{want}) {
			t.Errorf("%s has the rules %q; want %q", chain, got, want)
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, chain := range []string{"mangle KUBE-IPTABLES-HINT", "mangle KUBE-KUBELET-CANARY", "nat KUBE-KUBELET-CANARY", "filter KUBE-KUBELET-CANARY"} {
			if rules, there := m.rules(program + " " + chain); !there || len(rules) > 0 {
				t.Errorf("%s %s: there %v, rules %q", program, chain, there, rules)
			}
		}
	}
	if _, there := m.rules("ip6tables filter KUBE-FIREWALL"); there {
		t.Error("IPv6 has a KUBE-FIREWALL, which has nothing to drop there")
	}
}

// kept runs a Keeper over m until the test ends.
func kept(t *testing.T, m *tables) (*health.Tracker, *[]string) {
	t.Helper()
	tracker, events := health.NewTracker(logr.Discard()), &[]string{}
	k := New(Deps{Health: tracker, Event: func(message string) { *events = append(*events, message) }, Run: m.run})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return tracker, events
}

func TestTheChainsAreMadeAndMadeAgainWhenSomebodyFlushesThem(t *testing.T) {
	for name, flush := range map[string]func(m *tables){
		"all is gone": func(m *tables) { m.flush() },
		"rules go, chains stay (-F)": func(m *tables) {
			for chain := range m.chains {
				m.chains[chain] = nil
			}
		},
		"one jump": func(m *tables) { m.chains["iptables filter INPUT"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newTables()
				tracker, events := kept(t, m)
				m.whole(t)
				m.change(func() { flush(m) })
				time.Sleep(lookEvery + lookAgain)
				synctest.Wait()
				m.whole(t)
				if ok, _ := tracker.Ready(); !ok || len(*events) > 0 {
					t.Errorf("health %+v, events %q", tracker.Dependencies(), *events)
				}
			})
		})
	}
}

func TestALookAtWholeChainsIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTables()
		kept(t, m)
		time.Sleep(lookAgain + time.Second)
		synctest.Wait()
		before := m.count()
		time.Sleep(lookEvery)
		synctest.Wait()
		if got := m.count() - before; got == 0 || got > 5 {
			t.Errorf("%d programs in a minute; want 5 at most, and some", got)
		}
	})
}

func TestWhatSomebodyElseMadeIsNotMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTables()
		m.chains["iptables filter KUBE-FIREWALL"] = []string{strings.Join(firewallRules()[2].spec, " ")}
		m.chains["iptables mangle KUBE-IPTABLES-HINT"] = nil
		kept(t, m)
		m.whole(t)
	})
}

func TestAMachineWithoutIPTablesWorksAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTables()
		m.lacks["iptables"], m.lacks["ip6tables"] = exec.ErrNotFound, exec.ErrNotFound
		tracker, events := kept(t, m)
		time.Sleep(10 * lookEvery)
		synctest.Wait()
		d := tracker.Dependencies()
		if len(d) != 1 || d[0].Name != Dependency || d[0].Ready || !strings.Contains(d[0].Message, "makeIPTablesUtilChains") {
			t.Errorf("health %+v", d)
		}
		if len(*events) != 1 || (*events)[0] != d[0].Message {
			t.Errorf("events %q; want one", *events)
		}
		m.change(func() { clear(m.lacks) }) // installed by now
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		m.whole(t)
		if ok, _ := tracker.Ready(); !ok {
			t.Errorf("health %+v", tracker.Dependencies())
		}
	})
}

func TestAMachineWithoutIPv6IsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTables()
		m.lacks["ip6tables"] = errors.New("no such table")
		tracker, events := kept(t, m)
		rules, _ := m.rules("iptables filter KUBE-FIREWALL")
		if ok, _ := tracker.Ready(); !ok || len(*events) > 0 || len(rules) != 1 {
			t.Errorf("health %+v, events %q, rules %q", tracker.Dependencies(), *events, rules)
		}
	})
}

func TestWhatCannotBeMadeIsShownAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTables()
		m.refuse = &exitError{4, "Permission denied (you must be root)"}
		tracker, _ := kept(t, m)
		if d := tracker.Dependencies(); len(d) != 1 || d[0].Ready || !strings.Contains(d[0].Message, "Permission denied") {
			t.Errorf("health %+v", d)
		}
		m.change(func() { m.refuse = nil })
		time.Sleep(lookEvery)
		synctest.Wait()
		m.whole(t)
	})
}
