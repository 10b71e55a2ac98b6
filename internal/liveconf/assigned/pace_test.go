package assigned

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

// taking is a source that takes in what is offered, and when it did.
type taking struct {
	*Source
	began time.Time
	at    []time.Duration
	stop  func()
}

func (n *aNode) taking() *taking {
	k := &taking{Source: n.wellRun(), began: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.TakeIn(ctx, func() { k.at = append(k.at, time.Since(k.began)) })
	}()
	k.stop = func() { cancel(); <-done }
	return k
}

// TestChangesThatKeepComingAreTakenInEverMoreSlowlyAndTheNewestWins: the first one at once,
// and no more than six in the first five minutes, and then one in ten.
func TestChangesThatKeepComingAreTakenInEverMoreSlowlyAndTheNewestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newNode(t).taking()
		defer k.stop()
		said := map[string]bool{}
		for i := range 3600 {
			k.Offer(doc(fmt.Sprint(i), fmt.Sprintf("maxPods: %d\n", 20+i)))
			time.Sleep(time.Second)
			synctest.Wait()
			if text := k.View().Waits; text != "" {
				said[text] = true
			} else if v := k.View(); v.Assigned != fmt.Sprintf("ns/c@%d", i) {
				t.Errorf("after %d s %s is assigned, and nothing waits", i, v.Assigned)
			}
		}
		seconds := []int{}
		for _, at := range k.at {
			seconds = append(seconds, int(at.Round(time.Second).Seconds()))
		}
		if want := []int{0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030}; !slices.Equal(seconds, want) {
			t.Errorf("taken in after %v s, want %v", seconds, want)
		}
		if len(said) != len(seconds) || !strings.Contains(k.View().Waits, "changes too often") || !strings.Contains(k.View().Waits, k.began.Add(3630*time.Second).UTC().Format(time.RFC3339)) {
			t.Errorf("%d texts, now %q", len(said), k.View().Waits)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if v := k.View(); v.Assigned != "ns/c@3599" || v.Waits != "" {
			t.Errorf("the newest: %+v", v)
		}
		time.Sleep(21 * time.Minute)
		for i := range 2 { // it is quiet again
			k.Offer(doc(fmt.Sprintf("quiet%d", i), fmt.Sprintf("maxPods: %d\n", 30+i)))
			synctest.Wait()
			if v := k.View(); v.Assigned != fmt.Sprintf("ns/c@quiet%d", i) || v.Waits != "" {
				t.Errorf("after it was quiet: %+v", v)
			}
			time.Sleep(11 * time.Second)
		}
	})
}

func TestAPersonNeedNotWaitForWhatTheClusterSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newNode(t).taking()
		defer k.stop()
		for i := range 600 {
			k.Offer(doc(fmt.Sprint(i), fmt.Sprintf("maxPods: %d\n", 20+i)))
			time.Sleep(time.Second)
		}
		if k.View().Waits == "" {
			t.Error("nothing waits")
		}
		k.Retry()
		synctest.Wait()
		if v := k.View(); v.Assigned != "ns/c@599" || v.Waits != "" {
			t.Errorf("%+v", v)
		}
	})
}

// TestWhatIsToldOfWhatWaitsIsToldOnce: each time it is written, and a Node patched.
func TestWhatIsToldOfWhatWaitsIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		told := map[View]int{}
		last := View{}
		var k *taking
		n.cfg.Changed = func() {
			if k == nil {
				return
			}
			if v := k.View(); v != last {
				told[v]++
				last = v
			}
		}
		k = n.taking()
		defer k.stop()
		for i := range 1800 { // back and forth, and none in between
			d := []*Document{doc("1", "maxPods: 20\n"), doc("2", "maxPods: 21\n"), nil}[i%3]
			k.Offer(d)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		all := 0
		for _, n := range told {
			all += n
		}
		if all > 5*len(k.at) {
			t.Errorf("%d were taken in, and it was told %d times: %v", len(k.at), all, told)
		}
		if len(k.at) > 20 {
			t.Errorf("%d were taken in in half an hour", len(k.at))
		}
	})
}

func TestWhoTakesAConfigMapAwayNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newNode(t).taking()
		defer k.stop()
		for i := range 600 {
			k.Offer(doc(fmt.Sprint(i), fmt.Sprintf("maxPods: %d\n", 20+i)))
			time.Sleep(time.Second)
		}
		k.Offer(nil)
		synctest.Wait()
		if v := k.View(); v.Assigned != "" || v.Waits != "" {
			t.Errorf("%+v", v)
		}
		before := len(k.at)
		for i := range 600 { // nor does it help whoever names it again each time
			k.Offer(doc(fmt.Sprint(i), "maxPods: 20\n"))
			time.Sleep(time.Second)
			k.Offer(nil)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := len(k.at) - before; n > 6 {
			t.Errorf("%d were taken in within twenty minutes", n)
		}
	})
}

// TestAnotherVersionOfTheSameDoesNotDelayAChange: some controllers write their annotations
// at a ConfigMap each minute.
func TestAnotherVersionOfTheSameDoesNotDelayAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newNode(t).taking()
		defer k.stop()
		for i := range 60 {
			k.Offer(doc(fmt.Sprint(i), "maxPods: 20\n"))
			time.Sleep(30 * time.Second)
		}
		k.Offer(doc("60", "maxPods: 21\n"))
		synctest.Wait()
		if v := k.View(); v.Assigned != "ns/c@60" || v.Waits != "" || len(k.at) != 61 {
			t.Errorf("%+v, %d were taken in", v, len(k.at))
		}
		for i := range 100 { // as fast as they are written they are not shown
			k.Offer(doc(fmt.Sprint(61+i), "maxPods: 21\n"))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(k.at) - 61; n > 2 {
			t.Errorf("%d were taken in within ten seconds", n)
		}
	})
}

// TestWhoeverWritesAConfigMapAllDayDoesNotRestartPodsyncAllDay: with the controller, on a
// node whose services run whatever they are given.
func TestWhoeverWritesAConfigMapAllDayDoesNotRestartPodsyncAllDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owned{aNode: newNode(t), dir: filepath.Join(t.TempDir(), "kept"), bad: func(*kubeletconfig.Loaded) bool { return false }}
		o.start(false)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); o.source.TakeIn(ctx, o.controller.Changed) }()
		time.Sleep(3 * time.Minute)
		for i := range 3600 {
			o.source.Offer(doc(fmt.Sprint(i), fmt.Sprintf("maxPods: %d\n", 20+i)))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		o.mu.Lock()
		n := o.restarts["podsync"]
		o.mu.Unlock()
		if n < 5 || n > 11 {
			t.Errorf("podsync was started again %d times in an hour", n)
		}
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if o.put.Config.MaxPods != 3619 {
			t.Errorf("%d pods: the newest does not run", o.put.Config.MaxPods)
		}
		cancel()
		<-done
		o.stop()
		<-o.done
	})
}
