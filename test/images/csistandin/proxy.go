package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
)

// proxy listens on the driver's socket and for the suite, and joins one connection of
// each until ctx is done. The suite connects ahead of time.
func proxy(ctx context.Context, endpoint, suite string) error {
	address, ok := strings.CutPrefix(suite, "tcp://")
	if !ok {
		return fmt.Errorf("-proxy-endpoint=%s: want tcp://ADDRESS; this stand-in is no driver", suite)
	}
	path := strings.TrimPrefix(endpoint, "unix://")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	far, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	near, err := net.Listen("unix", path)
	if err != nil {
		return errors.Join(err, far.Close())
	}
	stop := context.AfterFunc(ctx, func() {
		_ = near.Close() // It ends with this process, too.
		_ = far.Close()
	})
	defer stop()
	for {
		caller, err := near.Accept()
		if err != nil {
			return ended(ctx, err)
		}
		driver, err := far.Accept()
		if err != nil {
			return ended(ctx, errors.Join(err, caller.Close()))
		}
		go join(caller, driver)
	}
}

// ended is the error of a listener that was not closed for ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// join copies both ways until either side ends.
func join(a, b net.Conn) {
	end := func() {
		_ = a.Close() // The other direction may have closed it.
		_ = b.Close()
	}
	go func() {
		defer end()
		_, _ = io.Copy(a, b) // An end is all that there is to tell, and end tells it.
	}()
	defer end()
	_, _ = io.Copy(b, a) // As above.
}
