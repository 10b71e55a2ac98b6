package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// apiDescription is some megabytes, and everyone with a token may read it.
	apiDescription = "/openapi/v2"
	// receivedAtLeast is twice what the suite wants of a node's interface.
	receivedAtLeast = 2 << 20
	// apiserverWithin is long beside what the apiserver takes to start on a busy machine.
	apiserverWithin = 10 * time.Minute
)

// receiveAsANode has the machine receive what a node of a real cluster has long received:
// it has pulled its images over its interface, here they come from a disk. The suite's test
// of the summary wants the interface's bytes since the boot to be a megabyte at least.
func receiveAsANode(ctx context.Context, apiserver, token string) error {
	ctx, cancel := context.WithTimeout(ctx, apiserverWithin)
	defer cancel()
	for {
		err := receive(ctx, apiserver, token)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("receive the API's description: %w", err)
		case <-time.After(time.Second):
		}
	}
}

// receive reads the beginning of the API's description, not compressed.
func receive(ctx context.Context, apiserver, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, apiserver+apiDescription, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{
		DisableCompression: true, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the suite trusts it likewise, and what is read is thrown away
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", req.URL, res.Status)
	}
	_, err = io.CopyN(io.Discard, res.Body, receivedAtLeast)
	return err
}
