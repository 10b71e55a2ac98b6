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
