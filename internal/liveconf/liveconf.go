// Package liveconf owns which configuration a running node has: it takes what the files
// say, tries a change on the services that use it, and goes back by itself to the last
// known good one when they do not run it well. It must never start a process, read the
// operator's files or speak to a service itself: Config and Node do.
package liveconf

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/wake"
)

const (
	// DefaultDeadline is how long services run a change well until it is good.
	DefaultDeadline = time.Minute
	// mostEnds is how often a service may end by itself during a trial until the change
	// is bad.
	mostEnds = 3
	// halfWritten is how long a file that cannot be read may be one that is being written.
	halfWritten = 2 * time.Second
	// comesUp is how long the next service waits for one that was started again.
	comesUp = 15 * time.Second
	// askWithin bounds a question to a service.
	askWithin = 3 * time.Second
	// takesWithin is how long a service may take for what it takes while it runs, until it is
	// started again for it: one of an earlier release knows of nothing.
	takesWithin = 5 * time.Second
	// looks is how often services are asked during a deadline.
	looks = 20
)

// Config of a Controller.
type Config struct {
	// Dir keeps the checkpoints; it is made when it is missing.
	Dir string
	// Node is this node's name; what another one has kept is not used. Empty: the one that
	// the flags say.
	Node string
	// Args are the flags that go on top of every configuration.
	Args []string
	// Services are those that run here.
	Services []string
	// Deadline is how long services run a change well until it is good; DefaultDeadline
	// when 0.
	Deadline time.Duration
	// Load reads what the files and flags say, and validates it.
	Load func() (*kubeletconfig.Loaded, error)
	// Over is the source over the files that Load reads as well; nil: there is none.
	Over Over
	// Check says what of a valid configuration this machine cannot do; nil: nothing.
	Check func(*kubeletconfig.Loaded) error
	// Running says that this is no start of the node: whoever owned the configuration before
	// was killed, or has ended without the services. The one that was active goes on, and
	// what the files say by now is a change of a running node.
	Running bool
	// Answers asks the apiserver by itself, with nothing of the configuration, and says why
	// it gives no answer; nil: that is not known. What a service lacks since the apiserver is
	// away says nothing about a change.
	Answers func(context.Context) error
	// Build names this build: a verdict of another one does not count.
	Build string
	// Log is the controller's.
	Log logr.Logger
}

// ErrStartAgain is what Run returns when the way back is one that only a start can go.
var ErrStartAgain = errors.New("the last known good configuration differs in what a running node cannot change: everything starts again with it")

// Node is what is done with the services. Calls come from one goroutine.
type Node interface {
	// Put hands a configuration to all services, for their next start.
	Put(loaded *kubeletconfig.Loaded, generation uint64) error
	// Restart ends a service in order, which then starts with what was put.
	Restart(service string) error
	// Change has a service take what was put while it runs. One that cannot may do nothing,
	// or end and start again.
	Change(service string) error
	// Ask asks a service how it does.
	Ask(ctx context.Context, service string) (Report, error)
	// Processors is what a service's process has had of them, and waited for, so far; false:
	// that is not known.
	Processors(service string) (schedstat.Times, bool)
	// Say shows how it stands to people.
	Say(State)
}

// Report is what a service says of itself.
type Report struct {
	// Checksum is that of the fields with which it runs.
	Checksum string
	// Lacks are the dependencies that it cannot use, with why.
	Lacks map[string]string
	// Unhealthy are the checks of its own that fail, with why.
	Unhealthy map[string]string
}

// Controller decides. Its methods may be called from any goroutine; Start comes first,
// then Run, once.
type Controller struct {
	cfg   Config
	store *store
	node  Node

	changed, back, retry wake.Signal

	mu    sync.Mutex
	ended []end // since they were last taken
	heard wake.Signal

	// Below: Start's and Run's.
	generation uint64
	active     *kubeletconfig.Loaded
	trial      *trial
	state      State
	refused    string          // what was said last of files that cannot be used
	absent     map[string]bool // services that were waited for and gave no answer since
	startAgain bool            // Run ends with ErrStartAgain
}

type end struct {
	service string
	err     error
}

// New returns a controller; nothing is read.
func New(cfg Config) *Controller {
	if cfg.Deadline <= 0 {
		cfg.Deadline = DefaultDeadline
	}
	cfg.Deadline = max(cfg.Deadline, time.Second) // services are asked twenty times in it
	return &Controller{
		cfg: cfg, store: newStore(cfg.Dir, cfg.Node, cfg.Build), absent: map[string]bool{},
		changed: wake.New(), back: wake.New(), retry: wake.New(), heard: wake.New(),
	}
}

// Changed says that the files may say something else.
func (c *Controller) Changed() { c.changed.Set() }

// Back asks for the configuration before the one that runs.
func (c *Controller) Back() { c.back.Set() }

// Retry forgets which configurations were bad, and tries what the files say.
func (c *Controller) Retry() { c.retry.Set() }

// Ended says that a service ended by itself.
func (c *Controller) Ended(service string, err error) {
	c.mu.Lock()
	c.ended = append(c.ended, end{service, err})
	if len(c.ended) > 100 {
		c.ended = c.ended[1:]
	}
	c.mu.Unlock()
	c.heard.Set()
}

// Run watches over the configuration that Start chose, and follows the files
// until ctx is done, or all has to start again (ErrStartAgain). What Start returned was
// handed over before.
func (c *Controller) Run(ctx context.Context, node Node) error {
	c.node = node
	c.node.Say(c.state)
	look := time.NewTicker(max(c.cfg.Deadline/looks, 50*time.Millisecond))
	defer look.Stop()
	again := time.NewTimer(0) // the files may have changed before they were watched
	defer again.Stop()
	failing := false // what the files said last could not be used, and may be half written
	consider := func() {
		if done := c.consider(ctx, failing); !done && !failing {
			failing = true
			again.Reset(halfWritten)
		}
	}
	for !c.startAgain {
		c.tellDamage()
		var ticks <-chan time.Time
		if c.trial != nil {
			ticks = look.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.back:
			c.takeBack(ctx)
		case <-c.retry:
			c.store.forgetBad()
			if c.cfg.Over != nil {
				c.cfg.Over.Retry()
			}
			c.consider(ctx, true)
		case <-c.heard:
			c.hear()
			c.judge(ctx)
		case <-ticks:
			c.ask(ctx)
			c.judge(ctx)
		case <-c.changed:
			failing = false
			consider()
		case <-again.C:
			consider()
		}
	}
	return ErrStartAgain
}

// consider looks at the files, and tries what they say if it is another configuration.
// False: they cannot be used, which is said when say is set, as they may be half written.
func (c *Controller) consider(ctx context.Context, say bool) bool {
	next, err := c.cfg.Load()
	if err == nil {
		if why := c.store.bad(next); why != "" {
			c.wasBad(next, why)
			return true
		}
	}
	// What runs does so, whatever has become of the machine since.
	if err == nil && c.cfg.Check != nil && sumOf(next) != sumOf(c.active) {
		err = c.cfg.Check(next)
	}
	if err == nil {
		err = configslice.Refusal(configslice.Difference(c.active.Fields(), next.Fields()))
	}
	if err != nil {
		if say {
			c.refuse(err)
		}
		return false
	}
	c.refused = ""
	switch {
	case sumOf(next) != sumOf(c.active):
		c.apply(ctx, next)
	case c.trial == nil:
		c.settled(next)
	}
	return true
}

// refuse says once why the files are not used.
func (c *Controller) refuse(err error) {
	text := err.Error()
	if text == c.refused {
		return
	}
	c.refused = text
	c.cfg.Log.Error(err, "The configuration is not taken; the one before goes on", "generation", c.generation)
	if c.trial == nil {
		c.say(State{Phase: Refused, Error: text})
	}
}

// wasBad says once that the files say what was tried before and taken back.
func (c *Controller) wasBad(next *kubeletconfig.Loaded, why string) {
	file := c.store.badFile(sumOf(next))
	if c.trial == nil && c.wasOvers(next, c.active, why, file) || why == c.refused {
		return
	}
	c.refused = why
	c.cfg.Log.Error(errors.New(why), "The files say what was bad before; it is not tried again: change it, or polylet config retry", "generation", c.generation, "file", file)
	if c.trial == nil {
		c.say(State{Phase: WentBack, Error: why, File: file})
	}
}

// tellDamage logs what is wrong with what is kept.
func (c *Controller) tellDamage() {
	for _, damage := range c.store.damages() {
		c.cfg.Log.Error(damage, "A configuration that was kept cannot be used")
	}
}

// apply tries a configuration: written down first, then handed over, then its owners
// one after the other.
func (c *Controller) apply(ctx context.Context, next *kubeletconfig.Loaded) {
	restart := c.running(configslice.OwnersOf(configslice.Difference(c.active.Fields(), next.Fields())))
	reference := c.store.lastKnownGood(c.cfg.Args)
	if reference == nil {
		// It has not run for long, and there is no better one to go back to.
		reference = c.active
		if err := c.store.setGood(c.generation, c.active); err != nil {
			c.cfg.Log.Error(err, "The configuration that runs could not be written down: there is no way back to it")
		}
		c.isGood(c.active)
	}
	changes := configslice.Difference(reference.Fields(), next.Fields())
	c.cfg.Log.Info("The configuration has changed; the services that use what changed take it, or start again with it",
		"generation", c.generation+1, "changes", configslice.Texts(changes), "services", restart)
	before, silent := c.reports(ctx, restart)
	var restarted []string // which a way back concerns too
	if c.trial != nil {
		restarted = c.trial.restarted
	}
	c.trial = newTrial(c.cfg.Deadline, changes, c.running(configslice.OwnersOf(changes)), before)
	c.trial.restarted, c.trial.silent = restarted, silent
	c.move(ctx, next, restart, Trying)
	if c.trial != nil && len(c.trial.owners) == 0 { // nobody uses it, or it is the good one again
		c.confirm()
		return
	}
	c.judge(ctx)
}

// running are those of the services that run here.
func (c *Controller) running(services []string) []string {
	return slices.DeleteFunc(services, func(s string) bool { return !slices.Contains(c.cfg.Services, s) })
}

func (c *Controller) judge(ctx context.Context) {
	if c.trial == nil {
		return
	}
	switch good, bad := c.trial.verdict(time.Now()); {
	case bad != nil:
		c.goBack(ctx, bad)
	case good:
		c.confirm()
	}
}

// confirm makes the active configuration the last known good one.
func (c *Controller) confirm() {
	changes := c.trial.changes
	c.trial = nil
	if err := c.store.setGood(c.generation, c.active); err != nil {
		c.cfg.Log.Error(err, "The configuration is good and could not be written down as such")
	}
	c.isGood(c.active)
	c.cfg.Log.Info("The configuration is good", "generation", c.generation, "changes", configslice.Texts(changes))
	c.say(State{Phase: Good})
	c.refused = "" // what the files said meanwhile could not be shown
	c.Changed()
}

func (c *Controller) say(s State) {
	s.Generation, s.Checksum, s.Since = c.generation, sumOf(c.active), time.Now().UTC()
	c.state = s
	if c.node != nil {
		c.node.Say(s)
	}
}

func sumOf(l *kubeletconfig.Loaded) string { return configslice.WholeChecksum(l.Fields()) }
