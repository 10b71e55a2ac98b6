package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/services/gateway"
	"github.com/polylet/polylet/services/nodestatus"
	podsyncservice "github.com/polylet/polylet/services/podsync"
	"github.com/polylet/polylet/services/probes"
	"github.com/polylet/polylet/services/stats"
)

// registered makes a service as its command does, without running it, and puts
// its RPCs on the daemon.
func registered(t *testing.T, d *daemon.Daemon, service string) {
	t.Helper()
	loaded := load(t, "--hostname-override=n1", "--root-dir="+t.TempDir())
	peer := func() *grpc.ClientConn {
		conn, err := d.Dial("peer")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var s interface{ Register(grpc.ServiceRegistrar) }
	var err error
	switch service {
	case "podsync":
		config, configErr := podsyncConfig(loaded)
		if configErr != nil {
			t.Fatal(configErr)
		}
		s, err = podsyncservice.New(config, podsyncservice.Deps{Metrics: d.Metrics(), Epoch: d.Epoch(), Runtime: peer(), Images: peer()})
	case "probes":
		s, err = probes.New(probes.Config{}, probes.Deps{Metrics: d.Metrics(), ProbeMetrics: prometheus.NewRegistry(), Epoch: d.Epoch(), Podsync: peer()})
	case "stats":
		s, err = stats.New(stats.Config{NodeName: "n1", RootDir: t.TempDir()}, stats.Deps{Podsync: peer(), Metrics: d.Metrics(), Epoch: d.Epoch()})
	case "nodestatus":
		s, err = nodestatus.New(nodestatusConfig(loaded), nodestatus.Deps{Metrics: d.Metrics(), Podsync: peer(), Stats: peer()})
	case "gateway":
		config, configErr := gatewayConfig(loaded)
		if configErr != nil {
			t.Fatal(configErr)
		}
		s, err = gateway.New(config, gateway.Deps{
			Metrics: d.Metrics(), Log: d.Log(), Podsync: peer(), Probes: peer(), Stats: peer(), Nodestatus: peer(), Self: peer(),
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Register(d.Server())
}

// TestEveryMethodSaysWhoMayCallIt lists what the five serve and to whom: what is
// new, or open to more, shows in the list.
func TestEveryMethodSaysWhoMayCallIt(t *testing.T) {
	var out bytes.Buffer
	for _, name := range service.All() {
		d, err := daemon.New(daemon.Options{Service: name, SocketDir: t.TempDir(), Access: accessTo(name)})
		if err != nil {
			t.Fatal(err)
		}
		registered(t, d, name)
		methods, err := d.Methods()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fmt.Fprintf(&out, "%s\n", name)
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			fmt.Fprintf(&out, "  %s: %s\n", method, methods[method])
		}
	}
	golden.Equal(t, "testdata/access.txt", out.Bytes())
}

// TestAServiceWithAMethodForNobodyDoesNotStart leaves the list of its RPCs out.
func TestAServiceWithAMethodForNobodyDoesNotStart(t *testing.T) {
	d, err := daemon.New(daemon.Options{Service: "gateway", SocketDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	registered(t, d, "gateway")
	err = d.Run(t.Context())
	if err == nil {
		t.Fatal("it runs")
	}
	has(t, err.Error(), "/polylet.gateway.v1.GatewayService/ListListeners has no entry")
}
