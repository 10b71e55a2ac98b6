package nodeshutdown

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/polylet/polylet/internal/backoff"
)

// longestLine bounds a line of either side.
const longestLine = 64 << 10

// Client is nodestatus' side. Safe for concurrent use; Run runs once.
type Client struct {
	path string
	dial func(ctx context.Context) (net.Conn, error)

	mu   sync.Mutex
	conn net.Conn  // nil while there is none
	done time.Time // the Since of the last shutdown that is done with
}

// NewClient returns a Client of the socket at a path; it connects with Run.
func NewClient(path string) *Client {
	return &Client{path: path, dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
}

// Run has told called with each State, the first right after a connection, and with
// what is wrong when there is none; until ctx is done.
func (c *Client) Run(ctx context.Context, told func(State, error)) error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2})
	for {
		err := c.once(ctx, func(s State) {
			retry.Reset()
			told(s, nil)
		})
		if ctx.Err() != nil {
			return nil
		}
		told(State{}, fmt.Errorf("follow the machine's shutdown at %s: %w: polylet run or polylet handout (polylet-handout.service) has to run as root", c.path, err))
		if retry.Wait(ctx) != nil {
			return nil
		}
	}
}

func (c *Client) once(ctx context.Context, told func(State)) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.conn = nil
		c.mu.Unlock()
		_ = conn.Close() // Nothing is lost with it.
	}()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var s State
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("read what is told: %w", err)
		}
		told(s)
		c.say(s.Since)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the other side has ended the connection")
}

// Done says that for the shutdown that began at since all is done.
func (c *Client) Done(since time.Time) {
	c.mu.Lock()
	c.done = since
	c.mu.Unlock()
	c.say(since)
}

// say says again what was done, for whoever held the lock may have been started anew.
func (c *Client) say(since time.Time) {
	c.mu.Lock()
	conn, done := c.conn, c.done
	c.mu.Unlock()
	if conn == nil || since.IsZero() || !done.Equal(since) {
		return
	}
	line, err := json.Marshal(answer{Done: done})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(deadline))
	_, _ = conn.Write(append(line, '\n')) // A connection that is broken is made anew, and this is said again.
}
