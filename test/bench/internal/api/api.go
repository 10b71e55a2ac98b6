// Package api measures the node's own API with pods on the node: its documents,
// exec, logs and port-forward. What it reads it checks: it must never have a time
// of a wrong answer.
package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
	"github.com/polylet/polylet/test/harness/install"
)

const (
	// together is how many pods are created at a time: a busy machine does not
	// start a hundred within the time that is waited for them.
	together = 20
	// warm is how long an agent has to measure in the background what it was
	// asked for the first time.
	warm = 2 * time.Second
	// pause is long enough for what an agent keeps to be too old to be served.
	pause = 15 * time.Second
	// scrapes is how often all documents are asked for, once a second.
	scrapes = 60
	// apiSettle is how long the pods are left alone before they are measured:
	// both agents have measured volumes and logs by then.
	apiSettle = 20 * time.Second
)

// apiStage is a node with pods and those who ask it.
type apiStage struct {
	*stage.Stage
	s     Settings
	c     *report.Column
	node  *asker
	names []string
}

// measure measures one agent's API on a fresh stage.
func measure(ctx context.Context, s Settings, agent string, r *report.Results) error {
	if err := install.Check(); err != nil {
		return err
	}
	st := &stage.Stage{}
	defer st.Close()
	if err := st.Open(ctx, agent); err != nil {
		return err
	}
	if err := st.Node.Start(ctx); err != nil {
		return err
	}
	return measureAPI(ctx, s, st, r.Column(agent))
}

// measureAPI measures the node's own API with a burst of pods: its documents,
// and with Settings.Streams what runs through it.
func measureAPI(ctx context.Context, s Settings, st *stage.Stage, c *report.Column) error {
	if err := st.WaitForNode(ctx); err != nil {
		return err
	}
	o, err := stage.Observe(ctx, st)
	if err != nil {
		return err
	}
	defer o.Watch.Stop()
	asker, err := newAsker(st)
	if err != nil {
		return err
	}
	a := &apiStage{Stage: st, s: s, c: c, node: asker, names: stage.BurstNames(s.Burst)}
	pods := st.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for names := range slices.Chunk(a.names, together) {
		if _, err := stage.Each(names, func(name string) error {
			_, err := pods.Create(ctx, stage.Pod(name), metav1.CreateOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("create pods: %w", err)
		}
		if _, err := o.Wait(ctx, names, func(m stage.Moments) bool { return !m.Ready.IsZero() }); err != nil {
			return fmt.Errorf("wait for Ready: %w%s", err, st.Node.Logs(30))
		}
	}
	if err := a.measure(ctx); err != nil {
		return fmt.Errorf("%w%s", err, st.Node.Logs(30))
	}
	// A watch may have ended unseen in minutes without an event.
	if o, err = stage.Observe(ctx, st); err != nil {
		return err
	}
	defer o.Watch.Stop()
	if _, err := stage.Each(a.names, func(name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) }); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	if _, err := o.Wait(ctx, a.names, func(m stage.Moments) bool { return !m.Gone.IsZero() }); err != nil {
		return fmt.Errorf("wait for gone: %w", err)
	}
	return nil
}

func (a *apiStage) measure(ctx context.Context) error {
	if err := stage.Sleep(ctx, apiSettle); err != nil {
		return err
	}
	if a.s.Requests > 0 {
		if err := a.documents(ctx); err != nil {
			return err
		}
	}
	if !a.s.Streams {
		return nil
	}
	return a.streams(ctx)
}

func (a *apiStage) documents(ctx context.Context) error {
	for _, d := range documents() {
		if err := a.document(ctx, d); err != nil {
			return err
		}
	}
	for _, d := range documents() {
		if err := a.afterPause(ctx, d); err != nil {
			return err
		}
	}
	return a.scrapeEachSecond(ctx)
}

// document asks for one document again and again.
func (a *apiStage) document(ctx context.Context, d document) error {
	// Opens the connection, and tells the agent what to measure from now on.
	first, _, err := a.node.get(ctx, d.path)
	if err != nil {
		return err
	}
	if err := stage.Sleep(ctx, warm); err != nil {
		return err
	}
	before, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	var last answer
	for range a.s.Requests {
		got, took, err := a.node.get(ctx, d.path)
		if err != nil {
			return err
		}
		if len(got.raw) < len(first.raw)/2 {
			return fmt.Errorf("%s was %d bytes and is %d", d.path, len(first.raw), len(got.raw))
		}
		a.c.Add(d.path+", ms", report.Milliseconds(took))
		last = got
	}
	after, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	a.c.Add(d.path+", CPU of 100 requests, ms", (after.CPU-before.CPU)*100/float64(a.s.Requests))
	if err := a.inspect(d, last); err != nil {
		return err
	}
	return a.profile(ctx, d)
}

// inspect checks what was read and notes how much it is, how old, and its shape.
func (a *apiStage) inspect(d document, got answer) error {
	body, err := got.body()
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if err := a.keepBody(d.path, body); err != nil {
		return err
	}
	if err := d.check(body, a.names); err != nil {
		return fmt.Errorf("%s is wrong: %w", d.path, err)
	}
	a.c.Add(d.path+", kB", float64(len(body))/1000)
	a.c.Add(d.path+", kB on the wire", float64(len(got.raw))/1000)
	if d.lines {
		a.c.Add(d.path+", series", float64(countSeries(body)))
	}
	if d.oldest != nil {
		at, err := d.oldest(body)
		if err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
		a.c.Add(d.path+", age of the oldest CPU figure of a container, s", got.at.Sub(at).Seconds())
	}
	shape, err := d.shape(body)
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	a.c.AddShape(d.path, shape)
	return nil
}

// afterPause asks once after nobody has asked for a while.
func (a *apiStage) afterPause(ctx context.Context, d document) error {
	if err := stage.Sleep(ctx, pause); err != nil {
		return err
	}
	got, took, err := a.node.get(ctx, d.path)
	if err != nil {
		return err
	}
	body, err := got.body()
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if err := d.check(body, a.names); err != nil {
		return fmt.Errorf("%s after a pause is wrong: %w", d.path, err)
	}
	a.c.Add(d.path+", first after 15 s, ms", report.Milliseconds(took))
	return nil
}

// scrapeEachSecond asks for all documents once a second.
func (a *apiStage) scrapeEachSecond(ctx context.Context) error {
	before, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	began, most, late := time.Now(), before.PSS, 0
	for n := range scrapes {
		// Another one first each time: the others may share its measurements.
		all := documents()
		for i := range all {
			d := all[(n+i)%len(all)]
			_, took, err := a.node.get(ctx, d.path)
			if err != nil {
				return fmt.Errorf("scrape %d: %w", n+1, err)
			}
			a.c.Add(d.path+", one a second, ms", report.Milliseconds(took))
		}
		now, err := usage.Of(a.Stage.Node)
		if err != nil {
			return err
		}
		most = max(most, now.PSS)
		next := time.Until(began.Add(time.Duration(n+1) * time.Second))
		if next < 0 {
			late++
		}
		if err := stage.Sleep(ctx, next); err != nil {
			return err
		}
	}
	after, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	const what = "all documents each second for a minute: "
	a.c.Add(what+"CPU, ms per second", (after.CPU-before.CPU)/time.Since(began).Seconds())
	a.c.Add(what+"PSS before, MiB", before.PSS)
	a.c.Add(what+"growth of PSS to its peak, MiB", most-before.PSS)
	a.c.Add(what+"growth of PSS at the end, MiB", after.PSS-before.PSS)
	a.c.Add(what+"seconds that were too short", float64(late))
	return nil
}
