package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// profileFor is how long a document is asked for while it is profiled.
const profileFor = 5 * time.Second

// profiled are the processes of polylet that documents go through.
var profiled = []string{"gateway", "podsync", "stats"}

// profile writes CPU profiles of what a document costs, as
// PROCESS-DOCUMENT.cpu, when the command line names a directory for them.
func (a *apiStage) profile(ctx context.Context, d document) error {
	return a.profileWhile(ctx, strings.TrimPrefix(strings.ReplaceAll(d.path, "/", "-"), "-"), func(asking context.Context) error {
		_, _, err := a.node.get(asking, d.path)
		return err
	})
}

// profileWhile writes CPU profiles of what something costs that is done again
// and again meanwhile.
func (a *apiStage) profileWhile(ctx context.Context, name string, do func(context.Context) error) error {
	if a.s.Profiles == "" || a.c.Name == "kubelet" {
		return nil
	}
	if err := os.MkdirAll(a.s.Profiles, 0o755); err != nil {
		return err
	}
	done := make(chan error, len(profiled))
	for _, process := range profiled {
		go func() { done <- a.saveProfile(ctx, process, process+"-"+name+".cpu") }()
	}
	asking, stop := context.WithTimeout(ctx, profileFor)
	defer stop()
	for asking.Err() == nil {
		if err := do(asking); err != nil && asking.Err() == nil {
			return err
		}
	}
	var errs []error
	for range profiled {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

func (a *apiStage) saveProfile(ctx context.Context, process, file string) error {
	body, err := a.node.open(ctx, fmt.Sprintf("/debug/pprof/%s/profile?seconds=%d", process, int(profileFor.Seconds())))
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read the profile of %s: %w", process, err)
	}
	return os.WriteFile(filepath.Join(a.s.Profiles, file), data, 0o644)
}
