package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// get prints the body of an answer that is 200.
func get(ctx context.Context, f flags) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.text("url", ""), nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", res.Status)
	}
	_, err = io.Copy(os.Stdout, res.Body)
	return err
}
