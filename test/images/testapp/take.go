package main

import (
	"context"
	"os"
	"runtime"
)

// take takes memory, page by page, or disk, and waits.
func take(ctx context.Context, f flags) error {
	n, err := f.number("mebibytes", 0)
	if err != nil {
		return err
	}
	const mebibyte = 1 << 20
	if path := f.text("path", ""); path != "" {
		if err := os.WriteFile(path, make([]byte, n*mebibyte), 0o644); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	var held [][]byte
	for range n {
		block := make([]byte, mebibyte)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	<-ctx.Done()
	runtime.KeepAlive(held)
	return nil
}
