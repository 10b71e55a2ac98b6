package dialctx

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestADialEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
			DialContext: Ending(func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				close(ended)
				return nil, ctx.Err()
			}),
		}}
		ctx, cancel := With(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://10.0.0.1/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
			t.Error("there was an answer")
		}
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the dial goes on")
		}
	})
}

func TestAConnectionIsClosedSoonAfterItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		dial := Closing(func(context.Context, string, string) (net.Conn, error) { return here, nil })
		ctx, cancel := With(t.Context())
		conn, err := dial(context.WithoutCancel(ctx), "tcp", "10.0.0.1:1")
		if err != nil || conn != here {
			t.Fatalf("%v, %v", conn, err)
		}
		closed := make(chan error, 1)
		go func() {
			_, err := there.Read(make([]byte, 1))
			closed <- err
		}()
		time.Sleep(time.Hour)
		cancel()
		for wait, want := range []bool{false, true} {
			time.Sleep(time.Duration(wait)*closingTime + time.Millisecond)
			synctest.Wait()
			if got := len(closed) == 1; got != want {
				t.Errorf("closed: %v, want %v", got, want)
			}
		}
		_ = here.Close()
	})
}
