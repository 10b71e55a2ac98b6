package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// errTaken is how take ends: the kubelet says of a pod that was evicted and whose
// containers all end well that it has succeeded.
var errTaken = errors.New("ended while it holds what it took")

const mebibyte = 1 << 20

// take takes something of the node's, and waits: memory page by page, or with a path
// disk, or files, or processes.
func take(ctx context.Context, f flags) error {
	n, err := f.number("mebibytes", 0)
	if err != nil {
		return err
	}
	files, err := f.number("files", 0)
	if err != nil {
		return err
	}
	threads, err := f.number("threads", 0)
	if err != nil {
		return err
	}
	switch path, crash := f.text("path", ""), f.text("crash", ""); {
	case crash != "":
		err = takeAndCrash(crash, path, n)
	case files > 0:
		err = takeFiles(path, files)
	case threads > 0:
		err = takeThreads(threads)
	case path != "":
		var file *os.File
		if file, err = takeDisk(path, n, f.text("unlink", "") != ""); file != nil {
			defer file.Close()
		}
	default:
		held := takeMemory(n)
		defer runtime.KeepAlive(held)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return errTaken
}

func takeMemory(mebibytes int) (held [][]byte) {
	for range mebibytes {
		block := make([]byte, mebibyte)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	return held
}

// takeDisk writes a file. One that is unlinked is before its first byte: it stays open, and
// its bytes stay with it; who fills a real disk may have to go before the last.
func takeDisk(path string, mebibytes int, unlink bool) (*os.File, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if unlink {
		if err := os.Remove(path); err != nil {
			return file, err
		}
	}
	block := make([]byte, mebibyte)
	for range mebibytes {
		if _, err := file.Write(block); err != nil {
			return file, err
		}
	}
	return file, nil
}

// takeAndCrash fills a disk the second time that it is called and ends, so that nothing of
// it runs until the back-off is over; the first time it ends at once.
func takeAndCrash(times, path string, mebibytes int) error {
	was, err := os.ReadFile(times)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(times, append(was, '.'), 0o644); err != nil {
		return err
	}
	switch len(was) {
	case 0:
		return errTaken
	case 1:
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		return errors.Join(errTaken, syscall.Fallocate(int(file.Fd()), 0, 0, int64(mebibytes)*mebibyte), file.Close())
	}
	return nil
}

func takeFiles(dir string, n int) error {
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, "file"+strconv.Itoa(i)), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// threadsEach is how many threads one of the processes has.
const threadsEach = 200

// takeThreads starts processes with so many threads in all.
func takeThreads(n int) error {
	for range (n + threadsEach - 1) / threadsEach {
		child := exec.Command("/proc/self/exe", "idle", fmt.Sprintf("threads=%d", threadsEach))
		if err := child.Start(); err != nil {
			return err
		}
	}
	return nil
}

// idle is one of takeThreads' processes; it ends with its container.
func idle(ctx context.Context, f flags) error {
	n, err := f.number("threads", 0)
	if err != nil {
		return err
	}
	for range n {
		go func() {
			runtime.LockOSThread()
			<-ctx.Done()
		}()
	}
	<-ctx.Done()
	return nil
}

// child has a child take memory, says how that ended, and goes on.
func child(ctx context.Context, f flags) error {
	hungry := exec.CommandContext(ctx, "/proc/self/exe", "take", "mebibytes="+f.text("mebibytes", "0"))
	fmt.Println("the child has ended:", hungry.Run())
	<-ctx.Done()
	return nil
}
