package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// logBytes is the size of the log that is read.
const logBytes = 128 << 20

// logs reads a long log of a pod, from the node and through the apiserver. The
// rate is that of the file, as the runtime wrote it.
func (a *apiStage) logs(ctx context.Context) error {
	pod := a.names[0]
	found, err := filepath.Glob(filepath.Join(a.Stage.Node.PodLogs, "default_"+pod+"_*", "app", "0.log"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("find the log of %s: %v, %w", pod, found, err)
	}
	want, messages, err := fillLog(found[0])
	if err != nil {
		return fmt.Errorf("fill %s: %w", found[0], err)
	}
	read := func(open func() (io.ReadCloser, error)) func() (int64, error) {
		return func() (int64, error) {
			body, err := open()
			if err != nil {
				return 0, err
			}
			defer body.Close()
			sum := crc32.New(castagnoli())
			n, err := io.Copy(sum, body)
			if err != nil {
				return n, err
			}
			return logBytes, same(n, messages, sum.Sum32(), want)
		}
	}
	if err := a.rate(ctx, "log, node API", read(func() (io.ReadCloser, error) {
		return a.node.open(ctx, "/containerLogs/default/"+pod+"/app")
	})); err != nil {
		return err
	}
	return a.rate(ctx, "log, through the apiserver", read(func() (io.ReadCloser, error) {
		return a.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	}))
}

// open begins to read something without an end in time.
func (a *asker) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := (&http.Client{Transport: a.client.Transport}).Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("ask for %s: %s", path, res.Status)
	}
	return res.Body, nil
}

// fillLog appends lines in the runtime's format until logBytes are written, and
// returns the sum and the length of their messages.
func fillLog(file string) (sum uint32, length int64, err error) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	out, messages := bufio.NewWriterSize(f, mebibyte), crc32.New(castagnoli())
	at := time.Date(2026, 11, 21, 10, 0, 0, 1, time.UTC)
	numbers := make([]byte, 99) // eleven numbers a line, the usual length of one
	for written := 0; written < logBytes; at = at.Add(time.Microsecond) {
		numbers = fmt.Appendf(numbers[:0], "%s message %0*d\n", at.Format(time.TimeOnly), 20+at.Nanosecond()/1000%100, written)
		messages.Write(numbers) // a hash takes everything
		length += int64(len(numbers))
		n, err := fmt.Fprintf(out, "%s stdout F %s", at.Format("2006-01-02T15:04:05.000000000Z07:00"), numbers)
		if err != nil {
			return 0, 0, err
		}
		written += n
	}
	return messages.Sum32(), length, errors.Join(out.Flush(), f.Close())
}

// portForward downloads a file from the pod.
func (a *apiStage) portForward(ctx context.Context, w way) error {
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := a.forwarder(w, stop, ready)
	if err != nil {
		return err
	}
	go func() { done <- forwarder.ForwardPorts() }()
	select {
	case err := <-done:
		return fmt.Errorf("open it: %w", err)
	case <-ctx.Done():
		close(stop)
		return ctx.Err()
	case <-ready:
	}
	defer func() {
		close(stop)
		<-done
	}()
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	want := crc32.New(castagnoli())
	if _, err := io.Copy(want, io.LimitReader(&lines{}, streamBytes)); err != nil {
		return err
	}
	return a.rate(ctx, "port-forward, "+w.name, func() (int64, error) {
		return download(ctx, fmt.Sprintf("http://127.0.0.1:%d/data", ports[0].Local), want.Sum32())
	})
}

// forwarder forwards a port of loopback to 8080 of the pod until stop is closed.
func (a *apiStage) forwarder(w way, stop, ready chan struct{}) (*portforward.PortForwarder, error) {
	u, config, err := a.reach(w, "/portForward/default/"+streamsPod, "portforward", url.Values{})
	if err != nil {
		return nil, err
	}
	addresses, ports := []string{"127.0.0.1"}, []string{"0:8080"}
	if w.webSocket {
		dialer, err := portforward.NewSPDYOverWebsocketDialer(u, config)
		if err != nil {
			return nil, err
		}
		return portforward.NewOnAddresses(dialer, addresses, ports, stop, ready, io.Discard, io.Discard)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	return portforward.NewOnAddresses(dialer, addresses, ports, stop, ready, io.Discard, io.Discard)
}

func download(ctx context.Context, from string, want uint32) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	sum := crc32.New(castagnoli())
	n, err := io.Copy(sum, res.Body)
	if err != nil {
		return n, err
	}
	return n, same(n, streamBytes, sum.Sum32(), want)
}
