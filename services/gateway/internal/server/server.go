// Package server adapts the listeners to GatewayService. It owns no state; it
// must never change anything.
package server

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	gatewayv1 "github.com/polylet/polylet/api/gen/polylet/gateway/v1"
	"github.com/polylet/polylet/services/gateway/internal/listen"
)

// Server implements GatewayService. See New.
type Server struct {
	gatewayv1.UnimplementedGatewayServiceServer
	listeners []*listen.Listener
	sessions  func() int32
}

// New returns a Server; sessions tells how many streams the secure port has open.
func New(listeners []*listen.Listener, sessions func() int32) *Server {
	return &Server{listeners: listeners, sessions: sessions}
}

// ListListeners implements GatewayService.
func (s *Server) ListListeners(context.Context, *gatewayv1.ListListenersRequest) (*gatewayv1.ListListenersResponse, error) {
	res := &gatewayv1.ListListenersResponse{}
	for _, l := range s.listeners {
		out := &gatewayv1.Listener{Name: l.Name, Address: l.Address()}
		if end := l.CertificateNotAfter(); !end.IsZero() {
			out.CertificateNotAfter = timestamppb.New(end)
		}
		if l.Name == "secure" {
			out.OpenSessions = s.sessions()
		}
		res.Listeners = append(res.Listeners, out)
	}
	return res, nil
}
