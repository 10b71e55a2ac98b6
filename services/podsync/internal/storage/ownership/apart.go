package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// Apart has calls done by processes of their own; *apart.Processes has it.
type Apart interface {
	Follow(ctx context.Context, whose string, told func(string), call string, args ...string) (string, error)
}

const callGive = "give-to-group"

// tellEvery is how often a process says how many files it has looked at.
const tellEvery = 5 * time.Second

// Calls are what ApplyApart has processes of their own do.
func Calls() map[string]apart.Call { return map[string]apart.Call{callGive: giveCall} }

// asked is a Change as its process is told.
type asked struct {
	Root       string `json:"root"`
	Group      int64  `json:"group"`
	ReadOnly   bool   `json:"readOnly,omitempty"`
	OnMismatch bool   `json:"onMismatch,omitempty"`
	Skip       bool   `json:"skip,omitempty"`
}

// skipped is what was left as it is.
type skipped struct {
	Files int    `json:"files"`
	First string `json:"first,omitempty"`
}

// ApplyApart is Apply, done by a process of its own: whoever answers for the files may not,
// and nothing of this process waits for him. whose names him. Given moves some seconds
// late, and Skip is told of the first file only, with how many more there were.
func (c Change) ApplyApart(ctx context.Context, by Apart, whose, root string) error {
	if c.Group == nil {
		return nil
	}
	text, err := json.Marshal(asked{Root: root, Group: *c.Group, ReadOnly: c.ReadOnly, OnMismatch: c.OnMismatch, Skip: c.Skip != nil})
	if err != nil {
		return err
	}
	told := func(how string) {
		if n, err := strconv.ParseInt(how, 10, 64); err == nil && c.Given != nil {
			c.Given.Store(n)
		}
	}
	answer, err := by.Follow(ctx, whose, told, callGive, string(text))
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", root, *c.Group, err)
	}
	var left skipped
	if err := json.Unmarshal([]byte(answer), &left); err != nil {
		return fmt.Errorf("give %s to group %d: its process says %q: %w", root, *c.Group, answer, err)
	}
	if left.Files > 0 && c.Skip != nil {
		c.Skip(fmt.Errorf("of %d files: %w", left.Files, errors.New(left.First)))
	}
	return nil
}

func giveCall(args []string) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("%s takes what is to be given, as JSON", callGive)
	}
	var a asked
	if err := json.Unmarshal([]byte(args[0]), &a); err != nil {
		return "", err
	}
	var left skipped
	c := Change{Group: &a.Group, ReadOnly: a.ReadOnly, OnMismatch: a.OnMismatch, Given: &atomic.Int64{}}
	if a.Skip {
		c.Skip = func(err error) {
			if left.Files++; left.First == "" {
				left.First = err.Error()
			}
		}
	}
	done := make(chan struct{})
	defer close(done)
	go tell(done, c.Given.Load)
	if err := c.Apply(context.Background(), a.Root); err != nil {
		return "", err
	}
	answer, err := json.Marshal(left)
	return string(answer), err
}

// tell says how many files were looked at, until done is closed.
func tell(done <-chan struct{}, given func() int64) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			apart.Tell(strconv.FormatInt(given(), 10))
		}
	}
}
