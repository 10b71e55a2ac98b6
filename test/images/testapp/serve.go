package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// serveHTTP serves until SIGTERM:
//
//	/healthz          200 or 503, switched by /toggle, /healthy, /unhealthy
//	/echo             the request's body
//	/headers          the request's headers
//	/env              the environment
//	/files/PATH       a file or a directory's names
//	/exit?code=N      ends the process
//	/slow?for=1s      answers late
//	/hostname         the host name
func serveHTTP(ctx context.Context, f flags) error {
	delay, err := f.duration("delay")
	if err != nil {
		return err
	}
	time.Sleep(delay)
	listener, err := net.Listen("tcp", ":"+f.text("port", "8080"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newMux(f.text("healthy", "true") == "true"), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Println("serving HTTP on", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	fmt.Println("stopped")
	return nil
}

func newMux(startHealthy bool) *http.ServeMux {
	var healthy atomic.Bool
	healthy.Store(startHealthy)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "testapp answers", r.URL.Path) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			http.Error(w, "unhealthy", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/toggle", func(w http.ResponseWriter, _ *http.Request) {
		healthy.Store(!healthy.Load())
		fmt.Fprintln(w, healthy.Load())
	})
	mux.HandleFunc("/healthy", func(http.ResponseWriter, *http.Request) { healthy.Store(true) })
	mux.HandleFunc("/unhealthy", func(http.ResponseWriter, *http.Request) { healthy.Store(false) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }) // the client sees a short body
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) { r.Header.Write(w) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		fmt.Fprintln(w, name)
	})
	mux.HandleFunc("/files/", readFile)
	mux.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Query().Get("code"))
		os.Exit(code)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.URL.Query().Get("for"))
		time.Sleep(d)
		fmt.Fprintln(w, "waited", d)
	})
	return mux
}

func readFile(w http.ResponseWriter, r *http.Request) {
	path := filepath.Clean("/" + strings.TrimPrefix(r.URL.Path, "/files/"))
	if entries, err := os.ReadDir(path); err == nil {
		for _, e := range entries {
			fmt.Fprintln(w, e.Name())
		}
		return
	}
	data, err := os.ReadFile(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Write(data) // the client sees a short body
}

func serveTCP(ctx context.Context, f flags) error {
	listener, err := net.Listen("tcp", ":"+f.text("port", "8080"))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	fmt.Println("serving TCP on", listener.Addr())
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn) // the client sees the end
		}()
	}
}

func serveGRPC(ctx context.Context, f flags) error {
	status, ok := healthpb.HealthCheckResponse_ServingStatus_value[f.text("status", "SERVING")]
	if !ok {
		return fmt.Errorf("argument status: no such status %q", f.text("status", ""))
	}
	listener, err := net.Listen("tcp", ":"+f.text("port", "8080"))
	if err != nil {
		return err
	}
	checks := health.NewServer()
	checks.SetServingStatus(f.text("service", ""), healthpb.HealthCheckResponse_ServingStatus(status))
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, checks)
	context.AfterFunc(ctx, server.Stop)
	fmt.Println("serving gRPC health on", listener.Addr())
	return server.Serve(listener)
}
