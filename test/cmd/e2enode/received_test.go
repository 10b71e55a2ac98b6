package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

func TestAMachineReceivesMoreThanAMegabyteFromAnApiserverThatIsStillStarting(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case asked.Add(1) == 1:
			http.Error(w, "starting", http.StatusServiceUnavailable)
		case req.URL.Path != apiDescription || req.Header.Get("Authorization") != "Bearer a-token" || req.Header.Get("Accept-Encoding") != "":
			t.Errorf("asked for %s with %v", req.URL, req.Header)
		default:
			_, _ = w.Write(bytes.Repeat([]byte("description "), receivedAtLeast/4))
		}
	}))
	t.Cleanup(server.Close)
	if err := receiveAsANode(t.Context(), server.URL, "a-token"); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 2 {
		t.Errorf("it was asked %d times", asked.Load())
	}
}

func TestADescriptionThatIsTooShortIsAnError(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("short"))
	}))
	t.Cleanup(server.Close)
	if err := receive(t.Context(), server.URL, "a-token"); err == nil {
		t.Error("the machine has received five bytes, and nobody is told")
	}
}
