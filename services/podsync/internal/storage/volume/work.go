package volume

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/contain"
)

// work is the set-up of a volume that takes as long as the volume is large, or its disk
// slow: it goes on when the Setup that began it has no more time, and the next one joins.
type work struct {
	cancel context.CancelCauseFunc
	chown  chown
	done   chan struct{}
	before Made  // what stood when it began
	made   Made  // what was made, if whoever began it says so; once done
	err    error // once done
	left   bool  // nobody waits for it; guarded by Set.mu
}

// errTornDown ends the set-up of volumes that are taken down.
var errTornDown = errors.New("the pod's volumes are taken down")

// work does the work of this name for a pod, or joins it, until ctx is done.
func (s *Set) work(ctx context.Context, uid types.UID, name string, do func(context.Context, *chown) error) error {
	_, err := s.making(ctx, uid, name, Made{}, func(ctx context.Context, c *chown) (Made, error) { return Made{}, do(ctx, c) })
	return err
}

// making is work that makes something; before is what stands of it, whatever comes of it.
func (s *Set) making(ctx context.Context, uid types.UID, name string, before Made, do func(context.Context, *chown) (Made, error)) (Made, error) {
	s.mu.Lock()
	st := s.pods[uid]
	if st == nil || st.ending {
		s.mu.Unlock()
		return before, errTornDown
	}
	w := st.works[name]
	if w == nil {
		on, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		w = &work{cancel: cancel, done: make(chan struct{}), before: before}
		st.works[name] = w
		go func() {
			defer cancel(nil)
			defer s.ended(uid, w)
			defer contain.Panic(on, fmt.Sprintf("%s of pod %s", name, uid), &w.err)
			w.made, w.err = do(on, &w.chown)
		}()
	}
	w.left = false
	s.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		w.left = true
		return w.before, w.still(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.works[name] == w {
		delete(st.works, name)
	}
	return w.made, w.err
}

// still says that a work is under way when ctx has ended.
func (w *work) still(ctx context.Context) error {
	if given := w.chown.files.Load(); given > 0 {
		return fmt.Errorf("it is still being set up, and %d of its files have been given to the pod's fsGroup: %w", given, context.Cause(ctx))
	}
	return fmt.Errorf("it is still being set up: %w", context.Cause(ctx))
}

// ended tells who waits for a work, and the pod's worker if nobody does.
func (s *Set) ended(uid types.UID, w *work) {
	s.mu.Lock()
	close(w.done)
	left := w.left
	s.mu.Unlock()
	if left && s.deps.Pods != nil {
		s.deps.Pods.ObjectsChanged([]types.UID{uid})
	}
}

// endWorks ends what is under way for a pod and waits for it.
func (s *Set) endWorks(ctx context.Context, st *podState) error {
	s.mu.Lock()
	var all []*work
	for _, w := range st.works {
		w.cancel(errTornDown)
		all = append(all, w)
	}
	s.mu.Unlock()
	for _, w := range all {
		select {
		case <-w.done:
		case <-ctx.Done():
			return fmt.Errorf("a volume is still being set up: %w", context.Cause(ctx))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(st.works)
	clear(st.bound)
	return nil
}
