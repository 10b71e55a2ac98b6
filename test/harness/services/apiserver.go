package services

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveAPIServer lets pods reach the apiserver by its service: it listens on loopback
// alone, so its port on the pods' gateway is handed on to it.
func (s *Services) serveAPIServer(ctx context.Context) error {
	at, err := url.Parse(s.cfg.Cluster.Server)
	if err != nil {
		return err
	}
	gateway := s.cfg.Instance.PodGateway()
	if s.apiserver, err = net.Listen("tcp", net.JoinHostPort(gateway, "0")); err != nil {
		return fmt.Errorf("listen for pods that want the apiserver: %w", err)
	}
	go handOn(s.apiserver, at.Host)
	ready, name, port := true, "https", int32(s.apiserver.Addr().(*net.TCPAddr).Port) //nolint:gosec // A port.
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{gateway}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	if _, err := s.cfg.Cluster.Client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("say where the service of the apiserver is: %w", err)
	}
	return nil
}

// handOn copies each connection to and from an address, until the listener is closed.
func handOn(l net.Listener, to string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return // the pod sees the end
			}
			defer far.Close()
			go func() {
				defer near.Close()
				defer far.Close()
				_, _ = io.Copy(far, near) // Either end is seen by both.
			}()
			_, _ = io.Copy(near, far) // As above.
		}()
	}
}
