package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// terminationLog is Kubernetes' default path for a container's last words.
const terminationLog = "/dev/termination-log"

func exit(ctx context.Context, f flags) error {
	after, err := f.duration("after")
	if err != nil {
		return err
	}
	code, err := f.number("code", 0)
	if err != nil {
		return err
	}
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return nil
	}
	if message := f.text("message", ""); message != "" {
		if err := os.WriteFile(terminationLog, []byte(message), 0o644); err != nil {
			return err
		}
	}
	os.Exit(code)
	return nil
}

func sleep(ctx context.Context, f flags) error {
	limit, err := f.duration("for")
	if err != nil {
		return err
	}
	linger, err := f.duration("linger")
	if err != nil {
		return err
	}
	if err := sayReady(f); err != nil {
		return err
	}
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	select {
	case <-over:
	case <-ctx.Done():
		time.Sleep(linger)
	}
	return nil
}

// stubborn can only be ended by SIGKILL.
func stubborn(f flags) error {
	signal.Reset()
	signal.Ignore(syscall.SIGTERM, os.Interrupt)
	fmt.Println("ignoring SIGTERM")
	if err := sayReady(f); err != nil {
		return err
	}
	select {}
}

// sayReady writes the file that the argument ready names: from then on signals are
// taken as they shall be.
func sayReady(f flags) error {
	if ready := f.text("ready", ""); ready != "" {
		return os.WriteFile(ready, nil, 0o644)
	}
	return nil
}

func writeLogs(ctx context.Context, f flags) error {
	lines, err := f.number("lines", 0)
	if err != nil {
		return err
	}
	rate, err := f.number("rate", 0)
	if err != nil {
		return err
	}
	size, err := f.number("size", 80)
	if err != nil {
		return err
	}
	filler := strings.Repeat("x", size)
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for n := 0; lines == 0 || n < lines; n++ {
		if ctx.Err() != nil {
			return out.Flush()
		}
		fmt.Fprintf(out, "%09d %s\n", n, filler)
		if rate > 0 {
			if err := out.Flush(); err != nil {
				return err
			}
			time.Sleep(time.Second / time.Duration(rate))
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func stat(f flags) error {
	path := f.text("path", "/")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat %s: no owner", path)
	}
	fmt.Printf("%s mode=%04o uid=%d gid=%d size=%d\n", path, info.Mode().Perm(), owner.Uid, owner.Gid, info.Size())
	return nil
}

func cat() error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}
