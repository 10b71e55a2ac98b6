package nodeshutdown

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// mostFollowers is how many connections there are at once; one is used.
const mostFollowers = 4

// Serve tells whoever may follow, until ctx is done. It closes the listener.
func (k *Keeper) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	slots := make(chan struct{}, mostFollowers)
	refusals := &quiet{}
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept who follows the machine's shutdown: %w", err)
		}
		if err := k.mayFollow(conn); err != nil {
			if refusals.speak(time.Now()) {
				klog.FromContext(ctx).Info("Somebody who may not asked for the machine's shutdown", "err", err)
			}
			_ = conn.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		serving.Go(func() {
			defer func() { <-slots }()
			k.serve(ctx, conn)
		})
	}
}

// quietFor is how long nothing is logged of who is refused, who may come as often as he
// likes.
const quietFor = time.Minute

// quiet lets one of them into the log in a while. For use by one goroutine.
type quiet struct{ until time.Time }

func (q *quiet) speak(now time.Time) bool {
	if now.Before(q.until) {
		return false
	}
	q.until = now.Add(quietFor)
	return true
}

// mayFollow refuses everybody but root and nodestatus, and every process of a pod, which
// may have any number: whoever follows can keep the machine from its shutdown, or let it go
// on without the pods' end. Under systemd other users' processes are hidden from this one,
// and it goes by the user alone.
func (k *Keeper) mayFollow(conn net.Conn) error {
	peer, err := k.peerOf(conn)
	if err != nil {
		return err
	}
	if peer.Pod != "" {
		return fmt.Errorf("process %d, of user %d, runs in a pod (%s)", peer.PID, peer.UID, peer.Pod)
	}
	if uid := int(peer.UID); uid != 0 && uid != k.cfg.UID {
		return fmt.Errorf("user %d is not nodestatus' (%d)", uid, k.cfg.UID)
	}
	return nil
}

func (k *Keeper) followed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.followers > 0
}

func (k *Keeper) follows(by int) {
	k.mu.Lock()
	k.followers += by
	k.mu.Unlock()
	k.moved.Set()
}

// serve tells one follower, and hears what it says.
func (k *Keeper) serve(parent context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	k.follows(1)
	defer k.follows(-1)
	var hearing sync.WaitGroup
	defer hearing.Wait()
	defer cancel()
	hearing.Go(func() {
		defer cancel()
		k.hear(ctx, conn)
	})
	for {
		state, changed := k.tell()
		line, err := json.Marshal(state)
		if err == nil {
			err = conn.SetWriteDeadline(time.Now().Add(deadline))
		}
		if err == nil {
			_, err = conn.Write(append(line, '\n'))
		}
		if err != nil {
			return // It connects again.
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (k *Keeper) hear(ctx context.Context, conn net.Conn) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return
		}
		select {
		case k.done <- a.Done:
		case <-ctx.Done():
			return
		}
	}
}
