package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	*stage
	s     settings
	c     *column
	node  *asker
	names []string
}

// measureAPI measures the node's own API with a burst of pods: its documents,
// and with settings.streams what runs through it.
func measureAPI(ctx context.Context, s settings, st *stage, c *column) error {
	if err := waitForNode(ctx, st); err != nil {
		return err
	}
	o, err := observe(ctx, st)
	if err != nil {
		return err
	}
	defer o.watch.Stop()
	asker, err := newAsker(st)
	if err != nil {
		return err
	}
	a := &apiStage{stage: st, s: s, c: c, node: asker, names: burstNames(s.burst)}
	pods := st.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for names := range slices.Chunk(a.names, together) {
		if _, err := each(names, func(name string) error {
			_, err := pods.Create(ctx, benchPod(name), metav1.CreateOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("create pods: %w", err)
		}
		if _, err := o.wait(ctx, names, func(m moments) bool { return !m.ready.IsZero() }); err != nil {
			return fmt.Errorf("wait for Ready: %w%s", err, st.node.Logs(30))
		}
	}
	if err := a.measure(ctx); err != nil {
		return fmt.Errorf("%w%s", err, st.node.Logs(30))
	}
	// A watch may have ended unseen in minutes without an event.
	if o, err = observe(ctx, st); err != nil {
		return err
	}
	defer o.watch.Stop()
	if _, err := each(a.names, func(name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) }); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	if _, err := o.wait(ctx, a.names, func(m moments) bool { return !m.gone.IsZero() }); err != nil {
		return fmt.Errorf("wait for gone: %w", err)
	}
	return nil
}

func (a *apiStage) measure(ctx context.Context) error {
	if err := sleep(ctx, apiSettle); err != nil {
		return err
	}
	if a.s.requests > 0 {
		if err := a.documents(ctx); err != nil {
			return err
		}
	}
	if !a.s.streams {
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
	if err := sleep(ctx, warm); err != nil {
		return err
	}
	before, err := usageOf(a.stage)
	if err != nil {
		return err
	}
	var last answer
	for range a.s.requests {
		got, took, err := a.node.get(ctx, d.path)
		if err != nil {
			return err
		}
		if len(got.raw) < len(first.raw)/2 {
			return fmt.Errorf("%s was %d bytes and is %d", d.path, len(first.raw), len(got.raw))
		}
		a.c.add(d.path+", ms", ms(took))
		last = got
	}
	after, err := usageOf(a.stage)
	if err != nil {
		return err
	}
	a.c.add(d.path+", CPU of 100 requests, ms", (after.cpu-before.cpu)*100/float64(a.s.requests))
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
	a.c.add(d.path+", kB", float64(len(body))/1000)
	a.c.add(d.path+", kB on the wire", float64(len(got.raw))/1000)
	if d.lines {
		a.c.add(d.path+", series", float64(countSeries(body)))
	}
	if d.oldest != nil {
		at, err := d.oldest(body)
		if err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
		a.c.add(d.path+", age of the oldest CPU figure of a container, s", got.at.Sub(at).Seconds())
	}
	shape, err := d.shape(body)
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	a.c.addShape(d.path, shape)
	return nil
}

// afterPause asks once after nobody has asked for a while.
func (a *apiStage) afterPause(ctx context.Context, d document) error {
	if err := sleep(ctx, pause); err != nil {
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
	a.c.add(d.path+", first after 15 s, ms", ms(took))
	return nil
}

// scrapeEachSecond asks for all documents once a second.
func (a *apiStage) scrapeEachSecond(ctx context.Context) error {
	before, err := usageOf(a.stage)
	if err != nil {
		return err
	}
	began, most, late := time.Now(), before.pss, 0
	for n := range scrapes {
		// Another one first each time: the others may share its measurements.
		all := documents()
		for i := range all {
			d := all[(n+i)%len(all)]
			_, took, err := a.node.get(ctx, d.path)
			if err != nil {
				return fmt.Errorf("scrape %d: %w", n+1, err)
			}
			a.c.add(d.path+", one a second, ms", ms(took))
		}
		now, err := usageOf(a.stage)
		if err != nil {
			return err
		}
		most = max(most, now.pss)
		next := time.Until(began.Add(time.Duration(n+1) * time.Second))
		if next < 0 {
			late++
		}
		if err := sleep(ctx, next); err != nil {
			return err
		}
	}
	after, err := usageOf(a.stage)
	if err != nil {
		return err
	}
	const what = "all documents each second for a minute: "
	a.c.add(what+"CPU, ms per second", (after.cpu-before.cpu)/time.Since(began).Seconds())
	a.c.add(what+"PSS before, MiB", before.pss)
	a.c.add(what+"growth of PSS to its peak, MiB", most-before.pss)
	a.c.add(what+"growth of PSS at the end, MiB", after.pss-before.pss)
	a.c.add(what+"seconds that were too short", float64(late))
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
